"""Tests that ONNX exports answer as the models do, and hold shared weights once."""

import os

import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
import tf_keras

from albert_tf import load_encoder, load_pretrainer
from albert_tf.export import __main__ as export
from albert_tf.export.onnx import onnx_model
from albert_tf.models.encoder import AlbertEncoder
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.kinds import EXPORTS, KINDS
from albert_tf.tasks.multi_label.model import MultiLabelSettings
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from albert_tf.tasks.regressor.model import RegressorSettings
from albert_tf.tasks.spans.heads import NEVER
from albert_tf.tasks.spans.model import SpanSettings
from albert_tf.tasks.tokens.model import TokenSettings

SETTINGS = {
    "classifier": ClassifierSettings(("a", "b", "c")),
    "multi_label": MultiLabelSettings(("a", "b")),
    "regressor": RegressorSettings(center=2.0, scale=3.0),
    "token_classifier": TokenSettings(("a",)),
    "multiple_choice": MultipleChoiceSettings(num_choices=3),
    "span": SpanSettings(n_best=5, max_answer_length=4),
    "span 2.0": SpanSettings(answerable=True, beam=3),
}
NAMES = ["encoder", "embedding", "fill_mask", *SETTINGS]
MODELS = {  # changes of the tiny model
    "the paper's": {},
    "pre-norm, rotary, gated": {"norm": "pre", "positions": "rotary", "ffn": "gated"},
    "unshared, one width, relu": {"sharing": "none", "embedding_size": 32, "activation": "relu"},
}


def model_of(name: str, config):
    tf_keras.utils.set_random_seed(1)
    if name == "fill_mask":
        return AlbertPretrainer(config).create_weights()
    encoder = AlbertEncoder(config).create_weights()
    if name not in SETTINGS:
        return encoder
    model = KINDS[SETTINGS[name].kind].model(encoder, SETTINGS[name]).create_weights()
    for weight in model.head.trainable_variables:  # or all answers are about as likely
        weight.assign(20.0 * weight)
    return model


def wanted_of(name: str, model, inputs) -> dict:
    """What the signature `tokens` of the SavedModel returns, but for strings."""
    outputs = model(inputs)
    if name == "encoder":
        return {key: outputs[key] for key in ("pooled_output", "sequence_output")}
    if name == "embedding":
        mask = inputs["input_mask"][..., None]
        return {"embedding": (mask * outputs["sequence_output"]).numpy().sum(1) / mask.sum(1)}
    if name == "fill_mask":
        return {"mlm_logits": outputs["mlm_logits"]}
    if name in ("classifier", "token_classifier"):
        return {"probabilities": tf.nn.softmax(outputs)}
    if name == "multi_label":
        return {"probabilities": tf.sigmoid(outputs)}
    if name == "multiple_choice":
        return {"probabilities": tf.nn.softmax(outputs), "choice": tf.argmax(outputs, 1)}
    return {"score": outputs} if name == "regressor" else outputs


def inputs_of(name: str, fake_inputs, count: int, length: int, padding=()) -> dict:
    choices = 3 if name == "multiple_choice" else 1
    inputs = fake_inputs(count * choices, length, padding)
    if name == "multiple_choice":
        inputs = {key: each.reshape(count, 3, length) for key, each in inputs.items()}
        if count > 1:
            inputs["input_mask"][0, 2] = 0  # a question of two options
    if name.startswith("span"):
        inputs["input_type_ids"] = (np.arange(length) > length // 3) * inputs["input_mask"]
    if name == "fill_mask":
        inputs["masked_lm_positions"] = np.tile([[1, 2]], [count, 1])
    return {key: each.astype(np.int32) for key, each in inputs.items()}


def session_of(model) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model.SerializeToString())


def run(session, inputs) -> dict:
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def assert_same(found: dict, wanted: dict) -> None:
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        value = np.asarray(value)
        assert found[key].shape == value.shape
        if key in ("start", "end"):  # which of those come first that may be no answer is open
            possible = np.asarray(wanted["score"]) > NEVER
            np.testing.assert_array_equal(found[key][possible], value[possible], key)
        elif found[key].dtype == np.int32:
            np.testing.assert_array_equal(found[key], value, key)
        else:
            np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-5, err_msg=key)


# By default the encoder with every block, and of the heads those that are not a dense layer.
FAST = [f"encoder-{key}" for key in MODELS] + [
    "span 2.0-the paper's",
    "multiple_choice-the paper's",
]
EVERY = [f"{name}-{key}" for key in MODELS for name in NAMES]


@pytest.mark.slow_parameters(*(each for each in EVERY if each not in FAST))
@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_every_kind_answers_as_its_model(tiny, fake_inputs, name, changes):
    model = model_of(name, tiny.replace(initializer_range=0.1, **changes))
    session = session_of(onnx_model(EXPORTS[name.split()[0]], model))
    assert {each.type for each in session.get_inputs()} == {"tensor(int32)"}
    for shape in ((1, 5), (3, 17, (0, 4, 11)), (2, 40, (0, 30))):
        inputs = inputs_of(name, fake_inputs, *shape)
        assert_same(run(session, inputs), wanted_of(name, model, inputs))


def test_shared_weights_are_stored_once(tiny):
    """Twelve layers are larger than one only by their nodes."""
    wide = tiny.replace(hidden_size=256, intermediate_size=1024)
    one, twelve = (
        onnx_model(EXPORTS["encoder"], AlbertEncoder(wide.replace(num_layers=n)).create_weights())
        for n in (1, 12)
    )
    names = [each.name for each in twelve.graph.initializer]
    assert len(set(names)) == len(names)
    assert twelve.ByteSize() < 1.05 * one.ByteSize()
    assert {each.domain for each in twelve.opset_import} == {""}  # the standard's operators only


def test_the_command_writes_it(pretrained, tmp_path, fake_inputs):
    for kind, options in (("encoder", {}), ("fill_mask", {}), ("embedding", {"pooling": "cls"})):
        output = str(tmp_path / kind)
        options = export.ExportOptions(pretrained, output, kind, format="onnx", **options)
        export.main(options)
        folder = os.path.join(output, "1")
        assert sorted(os.listdir(folder)) == ["config.json", "model.onnx", "tokenizer"]
        session = session_of(onnx.load(os.path.join(folder, "model.onnx")))
        inputs = inputs_of(kind, fake_inputs, 2, 9, (0, 3))
        model = load_pretrainer(pretrained) if kind == "fill_mask" else load_encoder(pretrained)
        wanted = (
            {"embedding": model(inputs)["pooled_output"]}
            if kind == "embedding"
            else wanted_of(kind, model, inputs)
        )
        assert_same(run(session, inputs), wanted)
    with pytest.raises(InputError, match="--version=2"):
        export.main(options)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "preprocessing"}, "--format=onnx needs a model that takes ids"),
        ({"kind": "embedding", "depths": "1"}, "--depths is only for --format=saved_model"),
        ({"precision": "mixed_bfloat16"}, "--precision is only for --format=saved_model"),
        ({"quantization": "float16"}, "--quantization must be none or int8 for --format=onnx"),
    ],
)
def test_what_cannot_be(pretrained, tmp_path, values, message):
    with pytest.raises(InputError, match=message):
        export.main(export.ExportOptions(pretrained, str(tmp_path / "x"), format="onnx", **values))
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_openvino_reads_it(tiny, fake_inputs, name, changes, tmp_path):
    openvino = pytest.importorskip("openvino")
    model = model_of(name, tiny.replace(initializer_range=0.1, **changes))
    onnx.save(onnx_model(EXPORTS[name.split()[0]], model), str(tmp_path / "model.onnx"))
    core = openvino.Core()
    compiled = core.compile_model(
        str(tmp_path / "model.onnx"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    inputs = inputs_of(name, fake_inputs, 3, 17, (0, 4, 11))
    outputs, wanted = compiled(inputs), wanted_of(name, model, inputs)
    assert_same({key: outputs[compiled.output(key)] for key in wanted}, wanted)
