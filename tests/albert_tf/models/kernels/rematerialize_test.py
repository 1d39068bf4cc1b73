"""Tests that the stack which recomputes gives the loss and gradients of the one which keeps."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.models.encoder import INPUTS, AlbertEncoder
from albert_tf.models.layers.attention import additive_mask
from albert_tf.models.layers.shared_stack import SharedStack

SHARINGS = [("all", 1), ("all", 2), ("attention", 1), ("ffn", 2), ("none", 1)]
TESTED = [("all", 2)]  # the others are slow


def config(sharing: str = "all", num_groups: int = 1, dropout: float = 0.0, **changes):
    values = {
        "vocab_size": 50,
        "embedding_size": 8,
        "hidden_size": 16,
        "num_layers": 4,
        "num_heads": 2,
        "intermediate_size": 32,
        "max_positions": 12,
        "initializer_range": 0.2,
        "sharing": sharing,
        "num_groups": num_groups,
        "hidden_dropout": dropout,
        "attention_dropout": dropout,
    }
    return AlbertConfig(**values | changes)


def stack_pair(values: AlbertConfig, **changes) -> list[SharedStack]:
    """The plain stack and the recomputing one, with the same weights."""
    stacks = [SharedStack(values), SharedStack(values.replace(rematerialize=True, **changes))]
    for stack in stacks:
        stack.build(None)
    stacks[1].set_weights(stacks[0].get_weights())
    return stacks


def run(stack: SharedStack, key=None, batch: int = 4, jit: bool = False) -> list[tf.Tensor]:
    """The last output, and the gradients of x and of each weight."""
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=(batch, 12, 16)).astype(np.float32))
    x = tf.cast(x, stack.compute_dtype)
    mask = additive_mask(tf.sequence_mask([12, 5, 1, 7][:batch], 12))

    @tf.function(jit_compile=jit, autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = stack(x, mask, dropout_key=key, training=True)[-1]
            loss = tf.reduce_sum(tf.cast(y, tf.float32) ** 3)
        return [y, *tape.gradient(loss, [x, *stack.trainable_variables])]

    return step(x)


def assert_equal(left: list, right: list, tolerance: float) -> None:
    """Differences relative to the largest gradient: that of a key's bias is 0 but for rounding."""
    left, right = ([np.asarray(tf.cast(t, tf.float32)) for t in ts] for ts in (left, right))
    top = max(np.abs(value).max() for value in left)
    for a, b in zip(left, right, strict=True):
        assert np.abs(a - b).max() <= tolerance * top


@pytest.mark.parametrize(
    ("sharing", "num_groups"),
    [each if each in TESTED else pytest.param(*each, marks=pytest.mark.slow) for each in SHARINGS],
)
def test_same_loss_and_gradients(sharing, num_groups):
    plain, saving = stack_pair(config(sharing, num_groups, dropout=0.1))
    key = tf.constant([3, 5])
    assert_equal(run(plain, key), run(saving, key), 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize(("sharing", "num_groups"), SHARINGS)
def test_same_loss_and_gradients_under_xla(sharing, num_groups, dropout):
    plain, saving = stack_pair(config(sharing, num_groups, dropout))
    key = tf.constant([3, 5]) if dropout else None
    assert_equal(run(plain, key), run(saving, key, jit=True), 2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [pytest.param(0.0, marks=pytest.mark.slow), 0.1])
def test_chunks_give_the_same_losses_and_gradients(dropout):
    plain, saving = stack_pair(config("all", 2, dropout), rematerialize_chunks=2)
    key = tf.constant([3, 5]) if dropout else None
    assert_equal(run(plain, key), run(saving, key), 1e-6)


def test_a_persistent_tape_gives_the_same_gradient_twice():
    _, saving = stack_pair(config("all", 2))
    x, mask = tf.random.normal([2, 12, 16]), additive_mask(tf.ones([2, 12]))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        loss = tf.reduce_sum(saving(x, mask, training=True)[-1] ** 3)
    np.testing.assert_array_equal(tape.gradient(loss, x), tape.gradient(loss, x))


def test_chunks_must_divide_the_batch():
    _, saving = stack_pair(config(), rematerialize_chunks=3)
    with pytest.raises(ValueError, match="3 chunks, 4 sequences"):
        run(saving)


@pytest.mark.slow
def test_mixed_bfloat16():
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        plain, saving = stack_pair(config("all", 2, dropout=0.1))
    finally:
        tf_keras.mixed_precision.set_global_policy(before)
    key = tf.constant([3, 5])
    left, right = run(plain, key), run(saving, key)
    assert left[0].dtype == tf.bfloat16
    assert {gradient.dtype for gradient in right[2:]} == {tf.float32}
    assert_equal(left, right, 2**-8)


def test_inner_outputs_have_values_and_no_gradient():
    plain, saving = stack_pair(config("all", 2))
    x, mask = tf.random.normal([2, 12, 16]), additive_mask(tf.ones([2, 12]))
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = saving(x, mask, training=True)
        loss = tf.reduce_sum(outputs[1])
    for left, right in zip(outputs, plain(x, mask, training=True), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Set rematerialize=False"):
        tape.gradient(loss, x)


@pytest.mark.slow
def test_a_recomputing_model_can_be_saved(fake_inputs, tmp_path):
    encoder = AlbertEncoder(config(rematerialize=True, vocab_size=300)).create_weights()
    ids = {name: tf_keras.Input([12], dtype=tf.int32, name=name) for name in INPUTS}
    tf_keras.Model(ids, encoder(ids)["pooled_output"]).save(str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    inputs = fake_inputs(2, 12)
    output = loaded({name: tf.constant(value) for name, value in inputs.items()}, training=False)
    np.testing.assert_allclose(output, encoder(inputs)["pooled_output"], atol=1e-6)


@pytest.mark.slow
def test_fit_has_the_same_losses_with_recomputation(fake_inputs):
    losses = {}
    weights = None
    for saving in (False, True):
        values = config(rematerialize=saving, vocab_size=300)
        encoder = AlbertEncoder(values).create_weights()
        weights = weights or encoder.get_weights()
        encoder.set_weights(weights)
        ids = {name: tf_keras.Input([None], dtype=tf.int32, name=name) for name in INPUTS}
        model = tf_keras.Model(ids, encoder(ids)["pooled_output"])
        model.compile(tf_keras.optimizers.legacy.SGD(0.1), "mse")
        history = model.fit(fake_inputs(8, 12), np.ones([8, 16]), 8, epochs=2, verbose=0)
        losses[saving] = history.history["loss"]
    assert losses[False][1] < losses[False][0]
    np.testing.assert_allclose(losses[True], losses[False], rtol=1e-5)


def test_fewer_layers_are_those_of_the_stack_that_keeps():
    x, mask = tf.random.normal([2, 12, 16], seed=1), additive_mask(tf.ones([2, 12], tf.int32))
    plain, other = stack_pair(config("all", 2))
    kept = plain(x, mask, training=True, num_layers=3)
    recomputed = other(x, mask, training=True, num_layers=3)
    assert len(kept) == len(recomputed) == 3
    np.testing.assert_allclose(recomputed[-1], kept[-1], rtol=1e-5)
    assert not np.allclose(kept[-1], plain(x, mask, training=True)[-1])
