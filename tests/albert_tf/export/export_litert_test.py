"""Tests that LiteRT exports answer as the models do and hold shared weights once."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from albert_tf.export.format import Request
from albert_tf.export.litert import LiteRT
from albert_tf.graph.signatures import IDS
from albert_tf.models.config import AlbertConfig
from albert_tf.models.encoder import INPUTS, AlbertEncoder
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.classifier.model import ClassifierSettings, SequenceClassifier
from albert_tf.tasks.classifier.module import ClassifierModule
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.kind import ExportSettings
from albert_tf.tasks.kinds import EXPORTS, KINDS
from albert_tf.tasks.predictor import predict
from albert_tf.text.tokenizer import load_tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEEP = AlbertConfig(
    vocab_size=2000,
    embedding_size=64,
    hidden_size=256,
    num_layers=6,
    num_heads=4,
    intermediate_size=1024,
    max_positions=40,
    initializer_range=0.06,
)
KERNELS = {
    "xnnpack": OpResolverType.AUTO,
    "plain": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
}


class Hidden:
    """An encoder as `EncoderModule` serves it, without what that traces for TF Hub."""

    def __init__(self, encoder):
        self.encoder = encoder

    def signatures(self):
        def tokens(*ids):
            outputs = self.encoder(dict(zip(INPUTS, ids, strict=True)))
            return {name: outputs[name] for name in ("pooled_output", "sequence_output")}

        return {"tokens": tf.function(tokens, input_signature=[IDS[name] for name in INPUTS])}


def rolled(model):
    """The same model with the same weights, its layers a loop."""
    if isinstance(model, AlbertEncoder):
        other = AlbertEncoder(model.config, unroll=False)
    else:
        other = type(model)(AlbertEncoder(model.encoder.config, unroll=False), model.task)
    other.create_weights().set_weights(model.get_weights())
    return other


@pytest.fixture(scope="module")
def write(small_tokenizer, tmp_path_factory):
    """(module, model config, task, options of `Request`) -> the folder written."""

    def write(module, config, task=None, **options):
        folder = tmp_path_factory.mktemp("litert")
        sections = {"model": config.__dict__} | ({"task": task.__dict__} if task else {})
        (folder / "config.json").write_text(json.dumps(sections))
        run = RunDir(str(folder))
        request = Request(EXPORTS["encoder"], run, small_tokenizer, ExportSettings(), **options)
        LiteRT().write(module, request, str(folder / "1"))
        return folder / "1"

    return write


@pytest.fixture(scope="module")
def deep():
    """An encoder of 6 layers that share their weights."""
    return AlbertEncoder(DEEP).create_weights()


@pytest.fixture(scope="module")
def deep_file(deep, write):
    return write(Hidden(rolled(deep)), DEEP) / "model.tflite"


@pytest.fixture(scope="module")
def examples(deep, fake_inputs):
    """[(inputs, what the encoder makes of them)], with much, little and no padding."""
    encode = tf.function(Hidden(deep).signatures()["tokens"].python_function)
    shapes = ((1, 40, ()), (1, 7, (3,)), (3, 24, (0, 5, 20)), (2, 1, ()))
    every = [fake_inputs(*shape) for shape in shapes]
    return [(inputs, encode(*(inputs[name] for name in INPUTS))) for inputs in every]


def interpreter(path, kernels="xnnpack"):
    return Interpreter(str(path), experimental_op_resolver_type=KERNELS[kernels], num_threads=1)


def assert_like(examples, path, kernels, tolerance):
    run = interpreter(path, kernels).get_signature_runner()
    for inputs, wanted in examples:
        found = run(**inputs)
        assert found.keys() == wanted.keys()
        for name, value in found.items():
            np.testing.assert_allclose(value, wanted[name], rtol=0, atol=tolerance)


class TestEncoder:
    @pytest.mark.slow
    @pytest.mark.parametrize("kernels", KERNELS)
    def test_any_shape(self, deep_file, examples, kernels):
        assert_like(examples, deep_file, kernels, 1e-5)

    @pytest.mark.slow
    def test_padding_and_neighbours_change_nothing(self, deep_file, fake_inputs):
        run = interpreter(deep_file).get_signature_runner()
        inputs = fake_inputs(3, 24, (0, 5, 20))
        together = run(**inputs)["pooled_output"]
        for row, length in enumerate((24, 19, 4)):
            alone = run(**{name: each[row : row + 1, :length] for name, each in inputs.items()})
            np.testing.assert_allclose(alone["pooled_output"][0], together[row], atol=1e-5)

    @pytest.mark.slow
    def test_ids_outside_of_the_vocabulary_are_an_error(self, deep_file, fake_inputs):
        inputs = fake_inputs(1, 4)
        inputs["input_word_ids"][0, 2] = DEEP.vocab_size
        with pytest.raises(RuntimeError, match="out of bounds"):
            interpreter(deep_file).get_signature_runner()(**inputs)

    @pytest.mark.parametrize("positions", ["learned", "rotary"])
    def test_more_positions_than_the_model_has_are_an_error(
        self, tiny, write, fake_inputs, positions
    ):
        config = tiny.replace(num_layers=1, positions=positions)
        module = Hidden(AlbertEncoder(config, unroll=False).create_weights())
        path, longest = write(module, config) / "model.tflite", config.max_positions
        for kernels in KERNELS:
            run = interpreter(path, kernels).get_signature_runner()
            before = run(**fake_inputs(1, longest))["pooled_output"]
            for length in (longest + 1, 2 * longest, 1000):
                with pytest.raises(RuntimeError, match=r"gather index out of bounds"):
                    run(**fake_inputs(1, length))
            after = run(**fake_inputs(1, longest))["pooled_output"]
            np.testing.assert_array_equal(before, after)

    @pytest.mark.slow
    @pytest.mark.parametrize("kernels", KERNELS)
    def test_a_block_that_is_not_the_papers(self, write, fake_inputs, kernels):
        config = DEEP.replace(norm="pre", positions="rotary", ffn="gated", num_layers=3)
        encoder = AlbertEncoder(config).create_weights()
        path = write(Hidden(rolled(encoder)), config) / "model.tflite"
        inputs = fake_inputs(3, 24, (0, 5, 20))
        encode = tf.function(Hidden(encoder).signatures()["tokens"].python_function)
        assert_like([(inputs, encode(*(inputs[name] for name in INPUTS)))], path, kernels, 1e-4)

    @pytest.mark.slow
    def test_layers_cost_nothing(self, deep_file, write):
        one = DEEP.replace(num_layers=1)
        one_layer = write(Hidden(AlbertEncoder(one, unroll=False).create_weights()), one)
        size = (one_layer / "model.tflite").stat().st_size
        assert deep_file.stat().st_size == pytest.approx(size, rel=0.01)

    # Tolerances beside a standard deviation of 1, which LayerNorm gives `sequence_output`.
    @pytest.mark.slow_parameters("float16-2-0.01")
    @pytest.mark.parametrize(
        ("quantization", "bytes_each", "tolerance"), [("float16", 2, 0.01), ("int8", 1, 0.25)]
    )
    def test_quantized(self, deep, write, examples, quantization, bytes_each, tolerance):
        path = write(Hidden(rolled(deep)), DEEP, quantization=quantization) / "model.tflite"
        weights = sum(int(np.prod(each.shape)) for each in deep.variables)
        assert path.stat().st_size <= 1.1 * bytes_each * weights
        for kernels in KERNELS:
            assert_like(examples, path, kernels, tolerance)


def operations(loaded):
    return {each["op_name"] for each in loaded._get_ops_details()}


class TestClassifier:
    TEXTS = ("the value of the sequence", "", "naïve 1,000", "of the object " * 30)

    @pytest.fixture(scope="class")
    def model(self, tiny):
        task = ClassifierSettings(seq_length=24, labels=("no", "yes", "ça"))
        model = SequenceClassifier(AlbertEncoder(tiny), task).create_weights()
        rng = np.random.default_rng(0)  # what Keras draws differs from run to run
        for each in model.trainable_variables:
            if each.shape.rank > 1:
                each.assign(rng.normal(scale=0.2, size=each.shape))
        return model

    @pytest.fixture(scope="class")
    def folder(self, model, tiny, small_tokenizer, write):
        return write(ClassifierModule(rolled(model), small_tokenizer), tiny, model.task)

    def test_the_folder_holds_configuration_model_and_tokenizer(
        self, folder, small_tokenizer, model
    ):
        assert sorted(os.listdir(folder)) == ["config.json", "model.tflite", "tokenizer"]
        assert load_tokenizer(folder).fingerprint == small_tokenizer.fingerprint
        labels = json.loads((folder / "config.json").read_text())["task"]["labels"]
        assert tuple(labels) == model.task.labels
        run = interpreter(folder / "model.tflite").get_signature_runner()
        assert set(run.get_output_details()) == {"probabilities", "score"}  # `label` is a string

    def test_one_shape_has_no_loop(self, folder, model, small_tokenizer, tiny, write, fake_inputs):
        module = ClassifierModule(model, small_tokenizer)
        path = write(module, tiny, model.task, seq_length=24) / "model.tflite"
        fixed = interpreter(path)
        assert {tuple(each["shape_signature"]) for each in fixed.get_input_details()} == {(1, 24)}
        assert "WHILE" in operations(interpreter(folder / "model.tflite", "plain"))
        assert "WHILE" not in operations(interpreter(path, "plain"))
        # Two layers more than with the loop are so many more nodes: 10,000 bytes each at most.
        assert path.stat().st_size < (folder / "model.tflite").stat().st_size + 2 * 10_000
        inputs = fake_inputs(1, 24, (9,))
        found = fixed.get_signature_runner()(**inputs)["probabilities"]
        np.testing.assert_allclose(found, tf.nn.softmax(model(inputs)), atol=1e-5)

    def test_the_example_answers_without_tensorflow(self, folder, model, small_tokenizer):
        code = (
            "import sys; from examples.ask_litert import main; main(sys.argv[1], sys.argv[2:]); "
            "assert 'tensorflow' not in sys.modules"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder), *self.TEXTS],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        kind, examples = KINDS["classifier"], [TextExample(text) for text in self.TEXTS]
        features = kind.featurize(examples, small_tokenizer, model.task)
        answers = kind.decode(predict(model, features, 4), features, examples, model.task)
        wanted = [f"    {each['label']} {each['score']:.2f}" for each in answers]
        assert done.stdout.splitlines()[1::2] == wanted
        assert len(set(wanted)) > 1


class TestRefusals:
    class Textual:
        """A module without ids, such as fill-mask."""

        def signatures(self):
            return {"serving_default": None}

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"seq_length": 41}, "--seq_length must be between 3 and 40.*41"),
            ({"seq_length": 2}, "--seq_length must be between 3 and 40.*2"),
        ],
    )
    def test_options_without_an_onnx_form_are_refused(self, tiny, write, options, message):
        with pytest.raises(InputError, match=message):
            write(self.Textual(), tiny, **options)

    def test_an_existing_output_stays(self, tiny, small_tokenizer, tmp_path):
        (tmp_path / "config.json").write_text(json.dumps({"model": tiny.__dict__}))
        (tmp_path / "1").mkdir()
        (tmp_path / "1" / "theirs").touch()
        with pytest.raises(InputError, match="--output"):
            run = RunDir(str(tmp_path))
            request = Request(EXPORTS["encoder"], run, small_tokenizer, ExportSettings())
            LiteRT().write(self.Textual(), request, str(tmp_path / "1"))
        assert os.listdir(tmp_path / "1") == ["theirs"]
