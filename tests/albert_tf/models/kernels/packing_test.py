"""Tests that padding which is not computed changes nothing that is read."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.models.config import AlbertConfig
from albert_tf.models.kernels import packing
from albert_tf.models.kernels.interface import PLAIN
from albert_tf.models.kernels.packing import Packing
from albert_tf.models.pretrainer import AlbertPretrainer

MASKS = {
    "some": np.arange(8) < np.array([8, 3, 1, 5])[:, None],
    "none": np.ones([4, 8], bool),
    "one position": np.arange(32).reshape(4, 8) < 31,
    "holes": np.random.default_rng(0).random([4, 8]) < 0.6,
    "all": np.zeros([4, 8], bool),
}


def batch(mask: np.ndarray, slots: int, last: int) -> tuple[dict, dict]:
    """Random inputs and labels, masked at positions below `last`."""
    rng = np.random.default_rng(2)
    rows = len(mask)
    inputs = {
        "input_word_ids": rng.integers(5, 50, mask.shape),
        "input_mask": mask,
        "input_type_ids": rng.integers(0, 2, mask.shape),
        "masked_lm_positions": rng.integers(0, last, [rows, slots]),
    }
    labels = {
        "masked_lm_ids": rng.integers(5, 50, [rows, slots]).astype(np.int32),
        "masked_lm_weights": np.ones([rows, slots], np.float32),
    }
    return {name: value.astype(np.int32) for name, value in inputs.items()}, labels


@pytest.mark.parametrize("smallest", [0, 33])
@pytest.mark.parametrize("name", MASKS)
def test_unpacking_undoes_packing(monkeypatch, name, smallest):
    monkeypatch.setattr(packing, "SMALLEST", smallest)
    mask = MASKS[name]
    packed = Packing.of(tf.constant(mask.astype(np.int32)))
    count = mask.sum()
    rows, positions = packed.rows.numpy(), packed.positions.numpy()
    np.testing.assert_array_equal(rows[:count], np.flatnonzero(mask))
    assert len(rows) == (32 if smallest else min(32, count + 1))
    x = tf.constant(np.random.default_rng(1).normal(size=[32, 3]).astype(np.float32))
    same = packed.unpack(packed.pack(x)).numpy()[mask.ravel()]
    np.testing.assert_array_equal(same, x.numpy()[mask.ravel()])
    # What is left over stands for padding, and padding for what is left over.
    assert not mask.ravel()[rows[count:]].any() and (positions[~mask.ravel()] >= count).all()


@pytest.mark.slow_parameters("block0-some")
@pytest.mark.slow_parameters(
    "block0-none", "block0-one position", "block1-none", "block1-one position"
)
@pytest.mark.parametrize("name", ["some", "none", "one position"])
@pytest.mark.parametrize("block", [{}, {"norm": "pre", "positions": "rotary", "ffn": "gated"}])
def test_losses_and_gradients_are_those_of_the_padded_batch(monkeypatch, name, block):
    monkeypatch.setattr(packing, "SMALLEST", 0)
    config = AlbertConfig(
        vocab_size=50,
        embedding_size=8,
        hidden_size=16,
        num_layers=2,
        num_heads=2,
        intermediate_size=48,
        max_positions=8,
        initializer_range=0.3,
        attention_dropout=0.1,
        **block,
    )
    model = AlbertPretrainer(config).create_weights()
    inputs, labels = batch(MASKS[name], slots=1, last=1)

    @tf.function(autograph=False)
    def sums_and_gradients(skip: bool):
        with tf.GradientTape() as tape:
            key = tf.constant([1, 2])
            encoded = model.encoder(
                {name: inputs[name] for name in list(inputs)[:3]},
                training=True,
                dropout_key=key,
                skip_padding=skip,
            )
            sums = model.mlm_head.sums(
                PLAIN,
                encoded["sequence_output"],
                inputs["masked_lm_positions"],
                model.encoder.embeddings.word_embeddings,
                labels["masked_lm_ids"][:, 0],
                labels["masked_lm_weights"][:, 0],
            )
            pairs = model.pair_head(encoded["pooled_output"])
            loss = sums[0] + tf.reduce_sum(pairs**3)
        gradients = tape.gradient(loss, model.trainable_variables)
        real = tf.boolean_mask(encoded["sequence_output"], inputs["input_mask"] > 0)
        return [real, sums[0], pairs, *map(tf.convert_to_tensor, gradients)]

    plain, packed = sums_and_gradients(False), sums_and_gradients(True)
    largest = max(np.abs(each).max() for each in plain[3:])
    for left, right in zip(packed, plain, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5 * largest)
    in_call = model(inputs, training=True, dropout_key=tf.constant([1, 2]), labels=labels)
    assert float(in_call["mlm_sums"][0]) == pytest.approx(float(plain[1]), rel=1e-5)


@pytest.mark.slow_parameters("block1")
@pytest.mark.parametrize("block", [{}, {"norm": "pre", "positions": "rotary", "ffn": "gated"}])
def test_a_step_on_a_cpu_is_that_of_the_plain_operations(block):
    """Packed rows with many spare ones and compiled programs."""
    config = AlbertConfig(
        vocab_size=50,
        embedding_size=8,
        hidden_size=32,
        num_layers=2,
        num_heads=2,
        intermediate_size=64,
        max_positions=320,
        initializer_range=0.2,
        attention_dropout=0.1,
        **block,
    )
    model = AlbertPretrainer(config).create_weights()
    mask = np.arange(320) < np.array([320, 203, 90, 151])[:, None]
    assert len(Packing.of(tf.constant(mask.astype(np.int32))).rows) == 780  # 764 and 16 spare ones
    inputs, labels = batch(mask, slots=12, last=90)

    def step(kernels: str) -> list[np.ndarray]:
        @tf.function(autograph=False)
        def run() -> list[tf.Tensor]:
            with tf.GradientTape() as tape:
                key = tf.constant([1, 2])
                outputs = model(
                    inputs, training=True, dropout_key=key, labels=labels, kernels=kernels
                )
                loss = outputs["mlm_sums"][0] + tf.reduce_sum(outputs["pair_logits"] ** 3)
                gradients = tape.gradient(loss, model.trainable_variables)
            return [outputs["mlm_sums"], *map(tf.convert_to_tensor, gradients)]

        return [each.numpy() for each in run()]

    (sums, *gradients), (plain_sums, *plain) = step("auto"), step("plain")
    np.testing.assert_allclose(sums, plain_sums, rtol=1e-5)
    scale = max(np.linalg.norm(each) for each in plain)
    for ours, theirs in zip(gradients, plain, strict=True):
        # Without rotation, the gradient of the key's bias is rounding alone.
        tolerance = 1e-4 * np.linalg.norm(theirs) + 1e-7 * scale
        assert np.linalg.norm(ours - theirs) < tolerance
