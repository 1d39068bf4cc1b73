"""Tests that layers with constant weights compute and answer as those with variables."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from albert_tf.export.constant_stack import ConstantStack, use_constants
from albert_tf.models.encoder import AlbertEncoder
from albert_tf.models.kernels.interface import PLAIN
from albert_tf.models.layers.attention import additive_mask
from albert_tf.models.layers.shared_stack import SharedStack
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.tasks.classifier.model import ClassifierSettings, SequenceClassifier
from albert_tf.tasks.classifier.module import ClassifierModule
from albert_tf.tasks.embedding.model import EmbeddingModel, EmbeddingSettings
from albert_tf.tasks.embedding.module import EmbeddingModule
from albert_tf.tasks.pretrained.fill_mask import FillMaskModule

NEW = {"norm": "pre", "positions": "rotary", "ffn": "gated"}
TEXTS = ["the word", "", "one two three four five six seven eight nine ten", "a"]


def shaken(variables: list[tf.Variable]) -> None:
    """Give every variable random values, biases too."""
    random = np.random.default_rng(0)
    for variable in variables:
        variable.assign_add(random.normal(size=variable.shape, scale=0.1).astype(np.float32))


def close(found: tf.Tensor, wanted: tf.Tensor, tolerance: float) -> None:
    np.testing.assert_allclose(
        tf.cast(found, tf.float32), tf.cast(wanted, tf.float32), atol=tolerance
    )


@pytest.mark.parametrize(
    ("changes", "dtype", "tolerance"),
    [
        ({}, "float32", 2e-5),
        (NEW, "float32", 2e-5),
        (NEW, "mixed_bfloat16", 0.1),  # 8 bits, outputs of size 1 to 4, three layers
        ({"sharing": "attention"}, "float32", 2e-5),
        ({"sharing": "none"}, "float32", 2e-5),
        ({"num_groups": 3}, "float32", 2e-5),
        (NEW | {"num_groups": 3}, "mixed_bfloat16", 0.1),
    ],
)
def test_layers_compute_the_same(tiny, changes, dtype, tolerance):
    stack = SharedStack(tiny.replace(num_layers=3, **changes), dtype=dtype)
    stack.build(None)
    shaken(stack.variables)
    x = tf.cast(tf.random.stateless_normal([2, 7, tiny.hidden_size], [1, 2]), stack.compute_dtype)
    mask = additive_mask(tf.constant([[1] * 7, [1] * 4 + [0] * 3]))
    outputs = stack(x, mask)
    close(stack(x, mask, first_only=True)[-1], outputs[-1][:, :1], tolerance)
    constant = ConstantStack(stack)
    shaken(stack.variables)  # too late to be seen
    for depth in (1, 2, None):
        wanted = outputs[(depth or 0) - 1]
        for first_only, positions in ((False, wanted), (True, wanted[:, :1])):
            call = functools.partial(constant.run, PLAIN, num_layers=depth, first_only=first_only)
            specs = [tf.TensorSpec([None, None, x.shape[2]], x.dtype), tf.TensorSpec(None)]
            (output,) = tf.function(call, input_signature=specs, autograph=False)(x, mask)
            close(output, positions, tolerance)


def test_only_small_layers_in_bfloat16_become_constants(tiny):
    encoder = AlbertEncoder(tiny).create_weights()
    use_constants(encoder)
    assert isinstance(encoder.stack, SharedStack)
    encoder = AlbertEncoder(tiny, dtype="mixed_bfloat16").create_weights()
    weights = sum(v.shape.num_elements() for v in encoder.variables)
    in_block = sum(v.shape.num_elements() for v in encoder.stack.variables)
    use_constants(encoder, 2 * in_block - 1)
    assert isinstance(encoder.stack, SharedStack)
    use_constants(encoder, 2 * in_block)
    assert isinstance(encoder.stack, ConstantStack)
    assert sum(v.shape.num_elements() for v in encoder.variables) == weights - in_block


@pytest.mark.slow
def test_masks_and_embeddings(tiny, small_tokenizer):
    config = tiny.replace(vocab_size=small_tokenizer.vocab_size)
    pretrainer = AlbertPretrainer(config, dtype="mixed_bfloat16").create_weights()
    shaken(pretrainer.variables)

    def answers() -> list[tf.Tensor]:
        fill_mask = FillMaskModule(pretrainer, small_tokenizer)
        model = EmbeddingModel(pretrainer.encoder, EmbeddingSettings())
        embedding = EmbeddingModule(model, small_tokenizer)
        texts = tf.constant(["the [MASK] of it", "a word"])
        return [
            fill_mask.signatures()["serving_default"](texts)["probabilities"],
            embedding.signatures()["serving_default"](texts)["embedding"],
        ]

    plain = answers()
    use_constants(pretrainer.encoder)
    for wanted, found in zip(plain, answers(), strict=True):
        assert np.abs(wanted).max() > 0.01
        np.testing.assert_allclose(found, wanted, atol=0.1)


@pytest.mark.slow
def test_export_answers_the_same_and_holds_the_block_once(tiny, small_tokenizer, tmp_path):
    config = tiny.replace(num_layers=4, vocab_size=small_tokenizer.vocab_size)
    encoder = AlbertEncoder(config, dtype="mixed_bfloat16")
    model = SequenceClassifier(
        encoder, ClassifierSettings(("no", "yes"), seq_length=16)
    ).create_weights()
    shaken(model.variables)
    affine = [v for v in encoder.stack.variables if v.name.endswith(("kernel:0", "bias:0"))]

    def export(name: str) -> tf.Module:
        module = ClassifierModule(model, small_tokenizer, depths=[1, 2], patience=1)
        tf.saved_model.save(module, str(tmp_path / name), signatures=module.signatures())
        return tf.saved_model.load(str(tmp_path / name))

    plain = export("plain")
    use_constants(model.encoder)
    constant = export("constant")
    for name in ("serving_default", "depth_1", "depth_2", "early_exit"):
        wanted, found = (
            loaded.signatures[name](tf.constant(TEXTS)) for loaded in (plain, constant)
        )
        difference = np.abs(wanted["probabilities"] - found["probabilities"])
        assert difference.max() < 0.02  # bfloat16 has 8 bits
        if name == "early_exit":
            np.testing.assert_array_equal(wanted["depth"], found["depth"])
    graph = saved_model_pb2.SavedModel()
    graph.ParseFromString((tmp_path / "constant" / "saved_model.pb").read_bytes())
    values = [
        node.attr["value"].tensor
        for function in graph.meta_graphs[0].graph_def.library.function
        for node in function.node_def
        if node.op == "Const"
    ]
    found = [len(each.tensor_content) for each in values if each.dtype == tf.bfloat16]
    assert sum(found) == 2 * sum(v.shape.num_elements() for v in affine)
