"""What every kind of task must do, from its examples to its exports; a kind gives its cases only.

Models are of random weights, which tell their inputs apart. What is a kind's own, such as numbers
computed by hand, is in its own tests.
"""

import dataclasses
import json
import pathlib
import pickle
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.convert import native
from albert_tf.convert.__main__ import ConvertOptions
from albert_tf.convert.__main__ import main as convert
from albert_tf.convert.bundle import Bundle, head_shapes
from albert_tf.export.__main__ import ExportOptions
from albert_tf.export.__main__ import main as export
from albert_tf.models.encoder import INPUTS
from albert_tf.runtime import settings
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.kinds import EXPORTS, KINDS
from albert_tf.tasks.predictor import Predictor, load_predictor, predict
from finetuning.datasets.dataset import Data
from finetuning.kinds.registry import FINETUNING
from tests.kinds.cases import CASES, FAST, Case
from tests.kinds.toy_kind import FinetuningOrdinal

ODD = ("", " \t", "a\0b", "naïve “x” 漢字 🙂", "the value of the object " * 40)


def test_the_registries_name_the_same_kinds():
    tried = {each.name for each in CASES.values()} - {FinetuningOrdinal.kind.name}
    assert [*KINDS] == [*FINETUNING] and tried == {*KINDS}
    for name, kind in KINDS.items():
        assert kind is EXPORTS[name] is FINETUNING[name].kind and kind.name == name


PARAMS = [
    pytest.param(case, id=name, marks=[] if name in FAST else [pytest.mark.slow])
    for name, case in CASES.items()
]


@pytest.fixture(params=PARAMS)
def case(request, monkeypatch) -> Case:
    """A case; the toy is listed in the two registries, which is all that a new kind changes."""
    toy = FinetuningOrdinal()
    if request.param.name == toy.kind.name:
        monkeypatch.setitem(KINDS, toy.kind.name, toy.kind)
        monkeypatch.setitem(EXPORTS, toy.kind.name, toy.kind)
        monkeypatch.setitem(FINETUNING, toy.kind.name, toy)
    return request.param


@pytest.fixture
def path(case, tiny, small_tokenizer, tmp_path) -> str:
    """A run of random weights."""
    tf_keras.utils.set_random_seed(7)
    folder, rng = str(tmp_path / "run"), np.random.default_rng(0)
    shapes = head_shapes(tiny, case.settings)
    head = {name: rng.normal(size=shape).astype("f") for name, shape in shapes.items()}
    (tmp_path / "run").mkdir()
    native.write(Bundle(tiny, head, small_tokenizer, case.settings), folder)
    return folder


def odd_examples(case: Case) -> list[Any]:
    """Examples of unusual texts."""
    return [case.unlabeled(text) for text in ODD]


def same(found: Any, wanted: Any) -> None:
    """Predictions are equal, up to float32's rounding."""
    assert type(found) is type(wanted)
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key, value in wanted.items():
            same(found[key], value)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, abs=2e-5)
    else:
        assert found == wanted


def test_settings_come_back_from_json(case):
    values = json.loads(json.dumps(settings.to_dict(case.settings)))
    assert values["kind"] == case.name
    assert settings.from_dict(KINDS[case.name].settings, values) == case.settings
    assert case.settings.limits(case.settings.seq_length) == {}
    short = case.settings.replace(**case.settings.limits(16))
    assert short.seq_length == 16 and short.head() == case.settings.head()


def test_examples_alone_and_together_have_one_prediction(case, path):
    predictor = load_predictor(path)
    examples = [*case.examples, *odd_examples(case)]
    together = predictor(examples)
    assert len(together) == len(examples) and predictor([]) == []
    for example, answer in zip(examples, together, strict=True):
        same(predictor([example])[0], answer)
        assert json.loads(json.dumps(answer)) == answer
    if KINDS[case.name].takes_strings and not case.settings.pair:
        same(predictor([case.texts[0]]), predictor([case.unlabeled(case.texts[0])]))


def test_wrong_examples_are_refused(case, path):
    predictor = load_predictor(path)
    for wrong in (3, None, ("a", "b")):
        with pytest.raises(InputError):
            predictor([wrong])
    broken = dataclasses.replace(case.unlabeled("a"), **{case.examples[0].named_texts[0][0]: 5})
    with pytest.raises(InputError, match="must be a string"):
        predictor([broken])


def outputs_of(predictor: Predictor, examples: list[Any]) -> tuple[Any, Any]:
    kind = KINDS[predictor.task.kind]
    features = kind.featurize(examples, predictor.tokenizer, predictor.task)
    return predict(predictor.model, features, 4), features


def test_a_mean_of_equal_members_is_each_of_them(case, path):
    predictor = load_predictor(path)
    kind, examples = KINDS[case.name], case.examples
    outputs, features = outputs_of(predictor, examples)
    mean = kind.average([outputs, outputs])
    same(
        kind.decode(mean, features, examples, predictor.task),
        kind.decode(outputs, features, examples, predictor.task),
    )


def inputs_of(names: list[str], examples: list[Any]) -> dict[str, tf.Tensor]:
    """The inputs of a signature for examples, by the names of their texts."""
    rows = [example.named_texts for example in examples]
    pair = ("text_a", "text_b") if "text_a" in names else ("text",)
    renamed = {"first": pair[0], "second": pair[-1]}
    found: dict[str, list] = {name: [] for name in names}
    for row in rows:
        texts: dict[str, list[str]] = {}
        for name, text in row:
            texts.setdefault(renamed.get(name, name), []).append(text)
        for name in names:
            found[name].append(texts[name] if name == "options" else texts[name][0])
    return {name: tf.constant(values) for name, values in found.items()}


def test_a_saved_model_answers_like_the_predictor(case, path, tmp_path):
    export(ExportOptions(path, str(tmp_path / "export")))
    folder = str(tmp_path / "export" / "1")
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    examples = [*case.examples, *odd_examples(case)]
    names = [*serve.structured_input_signature[1]]
    served = {name: value.numpy() for name, value in serve(**inputs_of(names, examples)).items()}
    answers = load_predictor(path)(examples)
    for number, answer in enumerate(answers):
        row = {name: value[number] for name, value in served.items()}
        same(case.of_served(row), case.of_prediction(answer))


def ids_of(predictor: Predictor, examples: list[Any]) -> dict[str, np.ndarray]:
    """The inputs of models that take ids, of one width."""
    _, features = outputs_of(predictor, examples)
    inputs, _ = features.batch(tf.range(len(features)))
    return {name: inputs[name].numpy() for name in INPUTS}


def test_onnx_and_litert_answer_like_the_signature_of_ids(case, path, tmp_path):
    for number, name in enumerate(("saved_model", "onnx", "litert"), 1):
        options = ExportOptions(path, str(tmp_path / "export"), version=number, format=name)
        export(options)
    ids = ids_of(load_predictor(path), case.examples)
    tokens = tf.saved_model.load(str(tmp_path / "export" / "1")).signatures["tokens"]
    wanted = {
        name: value.numpy()
        for name, value in tokens(**{k: tf.constant(v) for k, v in ids.items()}).items()
        if value.dtype != tf.string
    }
    session = onnxruntime.InferenceSession(str(tmp_path / "export" / "2" / "model.onnx"))
    names = [each.name for each in session.get_outputs()]
    found = dict(zip(names, session.run(None, ids), strict=True))
    lite = tf.lite.Interpreter(str(tmp_path / "export" / "3" / "model.tflite"))
    lite_found = lite.get_signature_runner()(**ids)
    assert lite_found.keys() == wanted.keys()
    for values in (found, lite_found):
        for name, value in values.items():
            case.compare(name, value, wanted[name], wanted)


def test_transformers_keeps_the_settings_and_the_weights(case, path, tmp_path):
    head = KINDS[case.name].transformers
    options = ConvertOptions(path, f"huggingface:{tmp_path / 'theirs'}")
    if head is None or head.refusal(case.settings):
        with pytest.raises(InputError, match="transformers"):
            convert(options)
        return
    convert(options)
    convert(ConvertOptions(f"huggingface:{tmp_path / 'theirs'}", str(tmp_path / "ours")))
    again = load_predictor(str(tmp_path / "ours"))
    assert again.task == case.settings
    same(again(case.examples), load_predictor(path)(case.examples))
    theirs = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert theirs["architectures"] == [head.architecture]


def test_a_line_of_input(case):
    tuned = FINETUNING[case.name]
    row = json.loads(json.dumps(case.json_line))
    assert tuned.of_json(row, case.settings, ()) == case.unlabeled(case.texts[0])
    with pytest.raises(ValueError, match="must"):
        tuned.of_json({name: 3 for name in row}, case.settings, ())
    assert tuned.expected_line(case.settings).startswith("A line must be ")


def test_the_answer_without_reading_and_the_card(case, path):
    tuned, data = FINETUNING[case.name], Data(case.settings, case.examples, {"dev": case.examples})
    predictions = load_predictor(path)(case.examples)
    text = "\n".join(tuned.card_sections(case.settings, predictions, case.examples))
    assert "## Worst mistakes" in text
    constant = tuned.constant_answer(data)
    if constant is not None:
        words, answer = constant
        assert words and answer.keys() <= predictions[0].keys()
    for example in case.examples:
        assert tuned.by_name(dataclasses.asdict(example), case.settings).keys() == {
            field.name for field in dataclasses.fields(example)
        }


def test_what_a_teacher_gives_trains_a_student(case, path):
    tuned, predictor = FINETUNING[case.name], load_predictor(path)
    if not tuned.can_be_taught:
        return
    outputs, features = outputs_of(predictor, case.examples)
    taught = tuned.taught_outputs(features, outputs)
    assert len(taught) == len(case.examples)
    flat = [(words, np.ravel(output)) for words, output in taught]
    targets = tuned.taught_targets(features, flat, predictor.task)
    assert len(targets) == len(features)
    loss = tuned.taught_loss(predictor.task, False, 1.0)
    assert float(loss(tf.constant(targets), tf.constant(outputs))) == pytest.approx(0, abs=1e-9)


def test_examples_and_features_survive_a_pickle(case, small_tokenizer):
    """As workers and caches need it."""
    kind = KINDS[case.name]
    features = kind.featurize(case.examples, small_tokenizer, case.settings)
    assert isinstance(features, kind.features)
    assert features.targets and features.num_examples == len(case.examples)
    assert pickle.loads(pickle.dumps(case.examples)) == case.examples
    unlabeled = [case.unlabeled(text) for text in case.texts]
    assert not kind.featurize(unlabeled, small_tokenizer, case.settings).targets


def test_a_run_names_its_kind(case, path: str):
    assert RunDir(path).kind() == case.name and pathlib.Path(path, "config.json").is_file()
