"""Tests of each layer's formula on numbers worked out by hand, and that layers share variables."""

import math

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.models.config import AlbertConfig, sharing_plan
from albert_tf.models.kernels.interface import PLAIN, Kernels
from albert_tf.models.layers import common
from albert_tf.models.layers.attention import SelfAttention, additive_mask
from albert_tf.models.layers.embeddings import AlbertEmbeddings
from albert_tf.models.layers.feed_forward import FeedForward
from albert_tf.models.layers.shared_stack import SharedStack

KEY = tf.constant([1, 2])


def small(**changes) -> AlbertConfig:
    values = {
        "vocab_size": 6,
        "embedding_size": 2,
        "hidden_size": 4,
        "num_layers": 3,
        "num_heads": 2,
        "intermediate_size": 4,
        "max_positions": 5,
        "initializer_range": 0.5,
    }
    return AlbertConfig(**values | changes)


def two_faces_of_a_softmax() -> SelfAttention:
    """Head 0 looks at the first coordinate, head 1 at the third; values are x, output is x."""
    layer = SelfAttention(small())
    layer(tf.zeros([1, 1, 4]), additive_mask(tf.ones([1, 1])))
    root = math.sqrt(2)  # undoes 1 / sqrt(D)
    layer.query.set_weights(
        [np.zeros([4, 4]), np.array([root * math.log(3), 0, root * math.log(4), 0])]
    )
    for dense in (layer.key, layer.value, layer.output_dense):
        dense.set_weights([np.eye(4), np.zeros(4)])
    return layer


# Logits of head 0 are [ln 3, 0]: softmax [3/4, 1/4]. Those of head 1 are [0, ln 4]: [1/5, 4/5].
X = np.array([[1, 8, 0, 10], [0, 4, 1, 20]], np.float32)
CONTEXT = np.array([0.75, 0.75 * 8 + 0.25 * 4, 0.8, 0.2 * 10 + 0.8 * 20], np.float32)


def layer_norm(y: np.ndarray) -> np.ndarray:
    return (y - y.mean(-1, keepdims=True)) / y.std(-1, keepdims=True)


@pytest.mark.parametrize("training", [False, True])
def test_attention_by_hand(training):
    layer = two_faces_of_a_softmax()
    out = layer(X[None], additive_mask(tf.ones([1, 2], tf.int32)), training=training)
    np.testing.assert_allclose(out[0], layer_norm(X + CONTEXT), atol=1e-5)


def test_padding_is_not_seen():
    layer = two_faces_of_a_softmax()
    padded = np.concatenate([X, [[100, -100, 100, -100]]])[None].astype(np.float32)
    out = layer(padded, additive_mask(tf.constant([[1, 1, 0]])))
    np.testing.assert_allclose(out[0, :2], layer_norm(X + CONTEXT), atol=1e-5)


def test_a_row_of_padding_is_finite():
    layer = two_faces_of_a_softmax()
    out = layer(X[None], additive_mask(tf.zeros([1, 2], tf.int32)))
    assert np.isfinite(out).all()


@pytest.mark.parametrize("training", [False, True])
def test_feed_forward_by_hand(training):
    layer = FeedForward(small(intermediate_size=3))
    layer(tf.zeros([1, 1, 4]))
    inner = np.array([[1, 0, -1], [0, 1, 0], [0, 0, 0], [0, 0, 0]])
    out = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0]])
    layer.intermediate.set_weights([inner, np.array([0.0, 1.0, 0.0])])
    layer.output_dense.set_weights([out, np.array([0.0, 10.0, 0.0, 0.0])])
    # inner: gelu of [1, 3, -1] = [0.841192, 2.996363, -0.158808]
    expected = np.array([1 + 0.841192 - 0.158808, 2 + 2.996363 + 10, 7, -3])
    x = tf.constant([[[1.0, 2.0, 7.0, -3.0]]])
    np.testing.assert_allclose(layer(x, training=training)[0, 0], layer_norm(expected), atol=1e-5)


def test_gelu_is_the_tanh_form():
    x = np.array([-2.0, -0.5, 0.0, 1.0, 3.0])
    formula = x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(PLAIN.activation(tf.constant(x), "gelu"), formula, rtol=1e-7)
    # The form with erf gives 0.841345 at 1.
    assert float(PLAIN.activation(tf.constant(1.0), "gelu")) == pytest.approx(0.841192, abs=1e-6)
    np.testing.assert_array_equal(PLAIN.activation(tf.constant(x), "relu"), np.maximum(x, 0))


def embeddings_by_hand(config: AlbertConfig) -> AlbertEmbeddings:
    layer = AlbertEmbeddings(config)
    ids = tf.zeros([1, 1], tf.int32)
    layer({"input_word_ids": ids, "input_type_ids": ids})
    layer.word_embeddings.assign([[w, 0] for w in range(6)])
    layer.type_embeddings.assign([[0, 0], [0, 7]])
    layer.position_embeddings.assign([[0, 10 * p] for p in range(5)])
    return layer


# Sums [5, 0], [3, 10 + 7], [0, 20]; LayerNorm of two numbers is 1 and -1, the larger one positive.
INPUTS = {"input_word_ids": tf.constant([[5, 3, 0]]), "input_type_ids": tf.constant([[0, 1, 0]])}


def test_embeddings_sum_then_norm_then_projection():
    layer = embeddings_by_hand(small(hidden_size=4))
    layer.projection.set_weights([np.array([[1, 2, 3, 4], [10, 20, 30, 40]]), np.full(4, 0.5)])
    ones = np.array([-9, -18, -27, -36])  # [1, -1] times the matrix
    np.testing.assert_allclose(layer(INPUTS)[0], [ones + 0.5, -ones + 0.5, -ones + 0.5], rtol=1e-4)


def test_equal_sizes_need_no_projection():
    layer = embeddings_by_hand(small(hidden_size=2, num_heads=1))
    assert layer.projection is None
    np.testing.assert_allclose(layer(INPUTS)[0], [[1, -1], [-1, 1], [-1, 1]], rtol=1e-4)


def test_dropout_rate_scale_and_identity():
    x = tf.ones([1000, 100])
    for rate in (0.1, 0.5):
        dropped = common.dropout(x, rate, KEY).numpy()
        np.testing.assert_allclose(np.unique(dropped), [0, 1 / (1 - rate)], rtol=1e-6)
        # Five standard deviations of a share of 100,000 draws.
        assert abs((dropped == 0).mean() - rate) < 5 * math.sqrt(rate * (1 - rate) / 1e5)
    assert common.dropout(x, 0.5, None) is x
    assert common.dropout(x, 0.0, KEY) is x
    assert common.fold_in(None, 3) is None


def test_dropout_is_a_function_of_its_key_everywhere():
    x = tf.ones([64, 33])

    def dropped(key, path=(3,)):
        for number in path:
            key = common.fold_in(key, number)
        return common.dropout(x, 0.1, key)

    eager = dropped(KEY).numpy()
    np.testing.assert_array_equal(eager, tf.function(dropped)(KEY))
    np.testing.assert_array_equal(eager, tf.function(dropped, jit_compile=True)(KEY))
    assert (eager != dropped(tf.constant([1, 3])).numpy()).any()
    for key, path in (([-1, -2], ()), ([-5, 2], (1,)), ([5, 7], (0, 1))):
        function = tf.function(lambda key, path=path: dropped(key, path), jit_compile=True)
        np.testing.assert_array_equal(dropped(tf.constant(key), path), function(tf.constant(key)))
    half = common.dropout(tf.ones([64, 33], tf.bfloat16), 0.1, common.fold_in(KEY, 3))
    np.testing.assert_array_equal(eager == 0, half.numpy() == 0)


def test_dropout_differs_between_sites_and_layers():
    config = small(hidden_dropout=0.5, attention_dropout=0.5, num_layers=3)
    stack, seen = SharedStack(config), []

    class Noted(Kernels):
        def dropout(self, x, dropout):
            seen.append(dropout.key)
            return super().dropout(x, dropout)

        def add_norm(self, x, update, norm, dropout=None):
            seen.append(dropout.key)
            return super().add_norm(x, update, norm, dropout)

    mask = additive_mask(tf.ones([2, 3]))
    stack.build(None)
    stack.run(Noted(), tf.random.normal([2, 3, 4]), mask, dropout_key=KEY, training=True)
    assert len({tuple(key.numpy()) for key in seen}) == len(seen) == 9


@pytest.mark.parametrize(
    "config",
    [
        small(),
        small(sharing="attention"),
        small(sharing="ffn"),
        small(num_layers=4, num_groups=2),
        small(sharing="attention", num_layers=4, num_groups=2),
    ],
)
def test_shared_gradients_are_the_sum_over_the_layers(config):
    plan = sharing_plan(config)
    x, mask = tf.random.normal([2, 3, 4]), additive_mask(tf.ones([2, 3]))
    shared, single = SharedStack(config), SharedStack(small(num_layers=len(plan), sharing="none"))
    outputs, gradients = {}, {}
    for stack in (shared, single):
        stack(x, mask)
    assert len(shared.attentions) == len({layer.attention for layer in plan})
    assert len(shared.feed_forwards) == len({layer.ffn for layer in plan})
    for number, layer in enumerate(plan):
        single.attentions[number].set_weights(shared.attentions[layer.attention].get_weights())
        single.feed_forwards[number].set_weights(shared.feed_forwards[layer.ffn].get_weights())
    for stack in (shared, single):
        with tf.GradientTape() as tape:
            outputs[stack] = stack(x, mask)
            loss = tf.reduce_sum(outputs[stack][-1] ** 3)
        layers = [*stack.attentions, *stack.feed_forwards]
        gradients[stack] = tape.gradient(loss, [layer.trainable_variables for layer in layers])
    np.testing.assert_allclose(outputs[shared], outputs[single], atol=1e-6)
    used = [a for a, _ in plan] + [len(shared.attentions) + f for _, f in plan]
    for owner, of_shared in enumerate(gradients[shared]):
        copies = [gradients[single][i] for i, user in enumerate(used) if user == owner]
        for values in zip(of_shared, *copies, strict=True):
            np.testing.assert_allclose(values[0], sum(values[1:]), atol=1e-4)


def test_one_output_per_layer():
    stack = SharedStack(small(num_layers=3))
    outputs = stack(tf.random.normal([2, 3, 4]), additive_mask(tf.ones([2, 3])))
    assert [output.shape for output in outputs] == [(2, 3, 4)] * 3
    assert len(stack.trainable_variables) == 16  # six kernels, six biases, two LayerNorms
