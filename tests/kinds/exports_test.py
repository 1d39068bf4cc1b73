"""What every kind of task must do in every format of exports: answer as the predictor does."""

import gzip
import json
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from hypothesis import given, settings
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from albert_tf.export.serving import WARM_UP
from albert_tf.models.encoder import INPUTS
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.predictor import Predictor
from albert_tf.text.graph_tokenizer import GraphTokenizer
from albert_tf.text.tokenizer import Tokenizer
from examples import ask, ask_litert
from finetuning.datasets.dataset import Reading
from finetuning.datasets.tokens.token_files import read_conll
from tests.albert_tf.export.export_outside_test import C_API, assert_same, isolated
from tests.albert_tf.export.export_strings_test import CALM, STRINGS
from tests.albert_tf.export.export_token_classifier_test import TEXT
from tests.kinds.cases import CASES, FAST, TEXTS
from tests.kinds.comparing import ODD, columns_of, odd_examples, same


def rows_of(outputs: Any) -> list[dict]:
    """The rows of a signature's outputs."""
    values = {name: np.asarray(value) for name, value in outputs.items()}
    return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]


def test_a_saved_model_answers_like_the_predictor(case, predictor, saved_model):
    """All texts together, each alone, and none; texts that lack a partner are refused."""
    serve = saved_model.signatures["serving_default"]
    specs = [*serve.structured_input_signature[1].items()]

    def ask(examples: list) -> list[dict]:
        columns = columns_of([key for key, _ in specs], examples)
        return rows_of(serve(**{key: tf.constant(each) for key, each in columns.items()}))

    examples = [*case.examples, *odd_examples(case)]
    rows = ask(examples)
    for example, row, answer in zip(examples, rows, predictor(examples), strict=True):
        same(case.of_served(row), case.of_prediction(answer))
        (alone,) = ask([example])
        same(case.of_served(alone), case.of_served(row))
    none = {key: tf.zeros([0, *[2] * (each.shape.rank - 1)], tf.string) for key, each in specs}
    assert {value.shape[0] for value in serve(**none).values()} == {0}
    for key, _ in specs[1:]:
        with pytest.raises(tf.errors.InvalidArgumentError, match="the same number of entries"):
            serve(**none | {key: tf.fill([1, *none[key].shape[1:]], "a")})


def ids_of(predictor: Predictor, examples: Any) -> dict[str, np.ndarray]:
    """The inputs of models that take ids, of one width."""
    kind = KINDS[predictor.task.kind]
    features = kind.featurize(examples, predictor.tokenizer, predictor.task)
    inputs, _ = features.batch(tf.range(len(features)))
    return {name: inputs[name].numpy() for name in INPUTS}


def test_onnx_and_litert_answer_like_the_signature_of_ids(
    name, case, predictor, saved_model, export_of
):
    tokens = saved_model.signatures["tokens"]
    path = f"{export_of(name, 'onnx')}/model.onnx"
    session = onnxruntime.InferenceSession(path)
    names = [each.name for each in session.get_outputs()]
    lite_path = f"{export_of(name, 'litert')}/model.tflite"
    kernels = (OpResolverType.AUTO, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    runners = [
        Interpreter(lite_path, experimental_op_resolver_type=each).get_signature_runner()
        for each in kernels
    ]
    served = saved_model.signatures["serving_default"].structured_outputs.keys()
    for examples in ([*case.examples, *case.more], case.examples[:1]):
        ids = ids_of(predictor, examples)
        outputs = tokens(**{key: tf.constant(each) for key, each in ids.items()})
        wanted = {key: value.numpy() for key, value in outputs.items() if value.dtype != tf.string}
        if outputs.keys() == served and not case.more:
            answers = [case.of_prediction(each) for each in predictor(examples)]
            same([case.of_served(row) for row in rows_of(outputs)], answers)
        found = dict(zip(names, session.run(None, ids), strict=True))
        for run in runners:
            lite_found = run(**ids)
            assert lite_found.keys() == wanted.keys()
            for values in (found, lite_found):
                for key, value in values.items():
                    case.compare(key, value, wanted[key], wanted)
    none = session.run(None, {key: value[:0] for key, value in ids.items()})
    assert {len(value) for value in none} == {0}


# By default those with the most signatures.
@pytest.mark.slow_parameters(
    *(each for each in FAST if each not in ("classifier", "multiple_choice"))
)
def test_the_warm_up_requests_are_answered(name, saved_model, export_of):
    """One at least for each signature."""
    answered = set()
    records = tf.data.TFRecordDataset(f"{export_of(name)}/assets.extra/{WARM_UP}")
    for record in records.as_numpy_iterator():
        request = PredictionLog.FromString(record).predict_log.request
        values = {key: tf.constant(tf.make_ndarray(each)) for key, each in request.inputs.items()}
        answered.add(request.model_spec.signature_name)
        outputs = saved_model.signatures[request.model_spec.signature_name](**values)
        assert {len(each) for each in outputs.values()} == {len(each) for each in values.values()}
    assert answered == set(saved_model.signatures)


@pytest.mark.slow
def test_openvino_answers_like_onnx_runtime(name, case, predictor, export_of):
    openvino = pytest.importorskip("openvino")
    path, ids = f"{export_of(name, 'onnx')}/model.onnx", ids_of(predictor, case.examples)
    session = onnxruntime.InferenceSession(path)
    names = [each.name for each in session.get_outputs()]
    wanted = dict(zip(names, session.run(None, ids), strict=True))
    precision = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(path, "CPU", precision)
    outputs = compiled(ids)
    for key, value in wanted.items():
        case.compare(key, outputs[compiled.output(key)], value, wanted)


def test_ids_that_no_encoder_can_read_are_refused(tiny, saved_model):
    tokens = saved_model.signatures["tokens"]
    specs = tokens.structured_input_signature[1]

    def ask(lengths, counts=(2, 2, 2)):
        rows = zip(INPUTS, counts, lengths, strict=True)
        return tokens(
            **{
                key: tf.ones([count, *[2] * (specs[key].shape.rank - 2), length], tf.int32)
                for key, count, length in rows
            }
        )

    longest = tiny.max_positions
    for length, count in ((3, 2), (longest, 2), (5, 0)):
        found = ask([length] * 3, [count] * 3)
        assert {value.shape[0] for value in found.values()} == {count}
    words = f"input_word_ids, input_mask, input_type_ids must have [13] to {longest} positions"
    for length in (0, longest + 1):
        with pytest.raises(tf.errors.InvalidArgumentError, match=words):
            ask([length] * 3)
    for row in range(3):
        other = [4 if row == each else 5 for each in range(3)]
        fewer = [1 if row == each else 2 for each in range(3)]
        for lengths, counts in ((other, [2] * 3), ([5] * 3, fewer)):
            with pytest.raises(tf.errors.InvalidArgumentError, match="must have one shape"):
                ask(lengths, counts)


def test_one_process_answers_for_every_kind_through_the_c_api(toy, export_of, saved_model_of):
    code = """
import json, runpy, sys
Session, found = runpy.run_path(sys.argv[1])["Session"], {}
for name, (path, inputs) in json.loads(sys.argv[2]).items():
    with Session(path) as session:
        found[name] = session.run(inputs)
assert not {"albert_tf", "tensorflow", "tf_keras", "numpy"} & set(sys.modules)
print(json.dumps(found, default=lambda value: value.decode(errors="replace")))
"""
    exports = {}
    for name in FAST:
        serve = saved_model_of(name).signatures["serving_default"]
        examples = [*CASES[name].examples, *odd_examples(CASES[name])]
        exports[name] = export_of(name), columns_of(serve.structured_input_signature[1], examples)
    found = json.loads(isolated("-c", code, C_API, json.dumps(exports)))
    assert found.keys() == exports.keys()
    for name, (_, inputs) in exports.items():
        assert_same(found[name], saved_model_of(name), inputs)


def test_the_examples_print_labels(predictor_of, export_of, capsys):
    texts = [text for text in (*TEXTS, *ODD) if text.strip()]
    answers = predictor_of("multi_label")(texts)
    labels = predictor_of("multi_label").task.labels

    def shown(names) -> str:
        return f"    {', '.join(names) or '(no label)'}"

    folders = export_of("multi_label"), export_of("multi_label", "litert")
    capsys.readouterr()  # of the exports, if they are made here
    ask.main(folders[0], texts)
    assert capsys.readouterr().out.splitlines()[1::2] == [shown(a["labels"]) for a in answers]
    ask_litert.main(folders[1], texts)
    in_order = [shown([each for each in labels if each in a["labels"]]) for a in answers]
    assert capsys.readouterr().out.splitlines()[1::2] == in_order


COUNT, BATCH = 10_000, 64
ASK = """
import pickle, runpy, sys
_, script, path, file = sys.argv
with open(file, "rb") as requests, runpy.run_path(script)["Session"](path) as session:
    found = [session.run(request) for request in pickle.load(requests)]
with open(file, "wb") as answers:
    pickle.dump(found, answers)
"""


@pytest.fixture(scope="module")
def generated() -> list[bytes]:
    """COUNT different strings, the same in each run; some are not valid UTF-8."""
    found = {}

    @settings(max_examples=11 * COUNT // 10, derandomize=True, **CALM)
    @given(text=STRINGS | TEXT.map(str.encode))
    def collect(text):
        found[text] = None

    collect()
    return list(found)[:COUNT]


@pytest.fixture
def texts(request, generated) -> list[bytes]:
    if request.param == "generated":
        return generated
    data = request.getfixturevalue("shared_data")
    found = [
        " ".join(each.tokens) for each in read_conll(f"{data}/ner/wnut17/dev.conll", Reading())
    ]
    for part in ("dev", "test"):
        path = data / "multilabel" / "goemotions" / f"{part}.tsv.gz"
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            found += [line.split("\t")[0] for line in lines]
    return [text.encode() for text in dict.fromkeys(found)][:COUNT]


@pytest.mark.slow
@pytest.mark.parametrize("texts", ["generated", "real"], indirect=True)
@pytest.mark.parametrize("name", FAST, indirect=True)
def test_ten_thousand_strings_through_the_c_api(
    name, case, predictor, saved_model, export_of, texts, tmp_path
):
    """Malformed UTF-8 is replaced, as the exports say."""

    def unfolded(value):
        if isinstance(value, list):
            return [*map(unfolded, value)]
        return value.encode(errors="surrogateescape")

    assert len(texts) == COUNT
    names = [*saved_model.signatures["serving_default"].structured_input_signature[1]]
    folded = [case.unlabeled(text.decode(errors="surrogateescape")) for text in texts]
    requests = [
        {key: unfolded(each) for key, each in columns_of(names, folded[i : i + BATCH]).items()}
        for i in range(0, COUNT, BATCH)
    ]
    (tmp_path / "file").write_bytes(pickle.dumps(requests))
    isolated("-c", ASK, C_API, export_of(name), str(tmp_path / "file"))
    answers = pickle.loads((tmp_path / "file").read_bytes())
    rows = [row for answer in answers for row in rows_of(answer)]
    examples = [case.unlabeled(text.decode(errors="replace")) for text in texts]
    differ = []
    for text, row, answer in zip(texts, rows, predictor(examples), strict=True):
        try:
            same(case.of_served(row), case.of_prediction(answer))
        except AssertionError as error:
            shown = text.decode(errors="replace")
            if not (is_tie(predictor.tokenizer, shown) or is_even(row, answer)):
                differ.append((text, error))
    assert not differ, f"{len(differ)} of {COUNT}, such as {differ[:3]}"


def is_even(row: dict, answer: Mapping[str, Any]) -> bool:
    """Several answers have the same highest probability, up to rounding."""
    if "probabilities" not in row:
        return False
    *_, second, first = sorted(row["probabilities"])
    same(list(map(float, row["probabilities"])), list(answer["probabilities"]))
    return first - second < 4e-5


def is_tie(tokenizer: Tokenizer, text: str) -> bool:
    """The other release of sentencepiece chooses another segmentation, of equal score."""
    ours, (others,) = (
        tokenizer.encode(text),
        GraphTokenizer(tokenizer)(tf.constant([text])).to_list(),
    )
    first, second = (
        sum(map(tokenizer.vocabulary.processor.get_score, ids)) for ids in (ours, others)
    )
    return ours != others and first == pytest.approx(second, abs=1e-3)
