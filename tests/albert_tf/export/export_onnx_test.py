"""Tests that ONNX exports answer as the models do with every block; heads are in tests/kinds."""

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
from albert_tf.tasks.embedding.model import EmbeddingModel, EmbeddingSettings
from albert_tf.tasks.kinds import EXPORTS

NAMES = ["encoder", "embedding", "fill_mask"]
MODELS = {  # changes of the tiny model
    "the paper's": {},
    "pre-norm, rotary, gated": {"norm": "pre", "positions": "rotary", "ffn": "gated"},
    "unshared, one width, relu": {"sharing": "none", "embedding_size": 32, "activation": "relu"},
}


def model_of(name: str, config):
    tf_keras.utils.set_random_seed(1)
    if name == "fill_mask":
        return AlbertPretrainer(config).create_weights()
    if name == "embedding":
        return EmbeddingModel(AlbertEncoder(config), EmbeddingSettings()).create_weights()
    return AlbertEncoder(config).create_weights()


def wanted_of(name: str, model, inputs) -> dict:
    """What the signature `tokens` of the SavedModel returns, but for strings."""
    if name == "embedding":
        mask = inputs["input_mask"][..., None]
        total = (mask * model.encoder(inputs)["sequence_output"]).numpy().sum(1)
        return {"embedding": total / np.linalg.norm(total, axis=1, keepdims=True)}
    outputs = model(inputs)
    if name == "encoder":
        return {key: outputs[key] for key in ("pooled_output", "sequence_output")}
    return {"mlm_logits": outputs["mlm_logits"]}


def inputs_of(name: str, fake_inputs, count: int, length: int, padding=()) -> dict:
    inputs = fake_inputs(count, length, padding)
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
        np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-5, err_msg=key)


@pytest.mark.slow_parameters(*(f"{n}-{key}" for n in NAMES[1:] for key in MODELS))
@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_every_pretrained_model_answers_as_in_python(tiny, fake_inputs, name, changes):
    model = model_of(name, tiny.replace(initializer_range=0.1, **changes))
    session = session_of(onnx_model(EXPORTS[name], model))
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
        pooled = tf.math.l2_normalize(model(inputs)["pooled_output"], axis=1)
        wanted = {"embedding": pooled} if kind == "embedding" else wanted_of(kind, model, inputs)
        assert_same(run(session, inputs), wanted)
    with pytest.raises(InputError, match="--version=2"):
        export.main(options)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "preprocessing"}, "--format=onnx is only for --kind=encoder, .*preprocessing"),
        ({"kind": "embedding", "depths": "1"}, "--depths is only for --format=saved_model"),
        ({"precision": "mixed_bfloat16"}, "--precision is only for --format=saved_model"),
        (
            {"quantization": "float16"},
            "--quantization=float16 is only for --format=litert. .*=onnx",
        ),
    ],
)
def test_options_without_an_onnx_form_are_refused(pretrained, tmp_path, values, message):
    with pytest.raises(InputError, match=message):
        export.main(export.ExportOptions(pretrained, str(tmp_path / "x"), format="onnx", **values))
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("name", NAMES)
def test_openvino_reads_it(tiny, fake_inputs, name, changes, tmp_path):
    openvino = pytest.importorskip("openvino")
    model = model_of(name, tiny.replace(initializer_range=0.1, **changes))
    onnx.save(onnx_model(EXPORTS[name], model), str(tmp_path / "model.onnx"))
    core = openvino.Core()
    compiled = core.compile_model(
        str(tmp_path / "model.onnx"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    inputs = inputs_of(name, fake_inputs, 3, 17, (0, 4, 11))
    outputs, wanted = compiled(inputs), wanted_of(name, model, inputs)
    assert_same({key: outputs[compiled.output(key)] for key in wanted}, wanted)
