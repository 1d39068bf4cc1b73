"""Tests of the operations for TPUs against their definitions; all run on a CPU."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.models.kernels import tpu_operations as tpu
from albert_tf.models.kernels.choice import TRAINING
from albert_tf.models.kernels.plain import Dropout, dropped
from albert_tf.models.layers.shared_stack import SharedStack

CONFIG = AlbertConfig(
    vocab_size=300,
    embedding_size=16,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    intermediate_size=64,
    max_positions=24,
    initializer_range=0.2,
)


def gradients(function, *inputs: np.ndarray) -> list[np.ndarray]:
    """The result of a function, and the gradients of a random weighting of it."""

    @tf.function(jit_compile=True, autograph=False)
    def run(*tensors: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            result = function(*tensors)
            loss = tf.reduce_sum(result * normal(*result.shape, seed=99))
        return [result, *tape.gradient(loss, tensors)]

    return [tensor.numpy() for tensor in run(*map(tf.constant, inputs))]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def assert_same(ours: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for one, other in zip(ours, wanted, strict=True):
        assert np.linalg.norm(one - other) <= 1e-5 * np.linalg.norm(other) + 1e-5


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_attention_is_that_of_the_definition(rate, parts):
    dropout = Dropout.of(rate, tf.constant([1, 2]))
    mask = tf.constant([[0.0] * 6, [0.0] * 4 + [-10000.0] * 2])[:, None, None]

    def plain(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
        weights = tf.nn.softmax(tf.einsum("bsnd,btnd->bnst", q, k) + mask)
        weights = weights if dropout is None else dropped(weights, dropout)
        return tf.einsum("bnst,btnd->bsnd", weights, v)

    inputs = [normal(2, 6, 3, 4, seed=seed) for seed in range(3)]
    ours = gradients(lambda q, k, v: tpu.attention(q, k, v, mask, dropout, parts), *inputs)
    assert_same(ours, gradients(plain, *inputs))


def test_dropout_in_blocks_of_chunks_is_that_of_the_whole_batch():
    q, k, v = (normal(4, 6, 3, 4, seed=seed) for seed in range(3))
    mask = np.zeros([4, 1, 1, 6], np.float32)

    def attention(rows: slice, key: list[int], parts: int) -> tf.Tensor:
        inputs = (tf.constant(x[rows]) for x in (q, k, v, mask))
        run = tf.function(tpu.attention, jit_compile=True, autograph=False)
        return run(*inputs, Dropout(0.5, tf.constant(key)), parts)

    chunks = [attention(slice(2 * i, 2 * i + 2), [1, 2, i], 2) for i in range(2)]
    whole = attention(slice(4), [1, 2], 1)
    np.testing.assert_allclose(tf.concat(chunks, 0), whole, rtol=1e-5, atol=1e-6)


def head_gradients(device: str, labels: list[int], *inputs: np.ndarray) -> list[np.ndarray]:
    """The sums of the MLM head for two positions, and the gradients of x, table and bias."""

    def sums(*inputs: tf.Tensor) -> tf.Tensor:
        weights = tf.constant([1.0, 0.5])
        ops = TRAINING[device]
        return ops.linear_cross_entropy(*inputs, tf.constant(labels), weights, tf.float32)

    return gradients(sums, *inputs)


TABLE, BIAS = normal(5, 4, seed=1), normal(5, seed=2)


def test_the_loss_of_an_invalid_label_is_not_a_number():
    for labels in ([-1, 2], [2, 5]):
        ours, wanted = (
            head_gradients(kind, labels, normal(2, 4), TABLE, BIAS)[0] for kind in ("TPU", "CPU")
        )
        np.testing.assert_array_equal(ours, wanted)
        assert np.isnan(ours[0]) and np.isfinite(ours[1])


@pytest.mark.parametrize(("labels", "right"), [([0, 0], 1.5), ([1, 0], 0.5), ([3, 1], 0.0)])
def test_of_equal_logits_the_first_is_the_largest(labels, right):
    table, bias = np.zeros([5, 4], np.float32), np.zeros([5], np.float32)
    ours = head_gradients("TPU", labels, normal(2, 4), table, bias)
    assert ours[0][1] == right
    assert_same(ours, head_gradients("CPU", labels, normal(2, 4), table, bias))


def test_a_logit_exceeds_that_of_the_label_by_at_most_the_limit():
    x, table = np.ones([2, 1], np.float32), np.zeros([5, 1], np.float32)
    labels, excess = [0, 0], tpu.LARGEST_EXCESS
    below, above = (np.array([0, 0, 0, 0, excess + more], np.float32) for more in (-1, 1000))
    ours = head_gradients("TPU", labels, x, table, below)
    assert_same(ours, head_gradients("CPU", labels, x, table, below))
    ours = head_gradients("TPU", labels, x, table, above)
    assert ours[0][0] == pytest.approx(1.5 * excess)  # else 1.5 * (excess + 1000)
    assert_same(ours[1:], head_gradients("CPU", labels, x, table, above)[1:])


def test_a_norm_and_both_of_its_twins():
    def ours(x: tf.Tensor, update: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
        dropout = Dropout(0.5, tf.constant([1, 2]))
        twins = tpu.add_dropout_norm(x, update, gamma, beta, 1e-12, dropout)
        return twins.residual + 2.0 * twins.operand

    def plain(x: tf.Tensor, update: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
        total = x + dropped(update, Dropout(0.5, tf.constant([1, 2])))
        mean, variance = tf.nn.moments(total, -1, keepdims=True)
        return 3.0 * ((total - mean) / tf.sqrt(variance + 1e-12) * gamma + beta)

    inputs = normal(2, 5, 8), normal(2, 5, 8, seed=1), normal(8, seed=2), normal(8, seed=3)
    assert_same(gradients(ours, *inputs), gradients(plain, *inputs))


def test_an_affine_map_into_heads():
    def plain(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        return tf.einsum("bsh,hnd->bsnd", x, kernel) + bias

    inputs = normal(2, 5, 6), normal(6, 3, 4, seed=1), normal(3, 4, seed=2)
    ours = gradients(lambda *given: tpu.affine(*given, equation="bsh,hnd->bsnd"), *inputs)
    assert_same(ours, gradients(plain, *inputs))


@pytest.mark.parametrize("at_least", [0, 2**27])
def test_a_chained_weight_has_the_sum_of_gradients(at_least):
    def ours(weight: tf.Tensor) -> tf.Tensor:
        following = tpu.chained(weight, at_least)
        return 2.0 * weight + following**2

    assert_same(gradients(ours, normal(3, 4)), gradients(lambda x: 2.0 * x + x**2, normal(3, 4)))


def test_the_blocks_of_attention():
    # 12 heads: 64 MiB hold the logits of 85 sequences of 128 pieces and of 5 of 512.
    assert tpu.num_blocks(64, 128, 12) == 1
    assert tpu.num_blocks(16, 512, 12) == 4  # of 4, the largest divisor up to 5
    assert tpu.num_blocks(72, 512, 64) == 8  # as many as there may be
    assert tpu.num_blocks(7, 4096, 64) == 7
    assert tpu.num_blocks(36, 512, 12) == 6  # 8 are wanted; of the divisors of 36, the largest
    for prime, length in ((17, 512), (61, 512), (127, 128)):
        assert tpu.num_blocks(prime, length, 12) == 1


@pytest.mark.slow
def test_shapes_that_keras_does_not_know():
    """As in `fit` and `save` on a TPU: the gradients are those of the known shape."""
    tf_keras.utils.set_random_seed(0)
    stack = SharedStack(CONFIG)
    stack.build([None, None, CONFIG.hidden_size])
    x, mask = normal(2, 6, CONFIG.hidden_size), np.zeros([2, 1, 1, 6], np.float32)

    def gradient(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(stack.run(TRAINING["TPU"], x, mask, training=True)[-1] ** 3)
        return tape.gradient(loss, x)

    unknown = [tf.TensorSpec([None, None, CONFIG.hidden_size]), tf.TensorSpec([None, 1, 1, None])]
    known = [tf.TensorSpec(x.shape), tf.TensorSpec(mask.shape)]
    ours, wanted = (
        tf.function(gradient, signature, jit_compile=True)(x, mask).numpy()
        for signature in (unknown, known)
    )
    np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "equation",
    ["bsk,kn->bsn", "bsnd,btnd->bnst", "bnst,btnd->bsnd", "bsh,bsnd->hnd", "nv,ne->ve"],
)
def test_einsum_is_tensorflow_s(equation):
    rng = np.random.default_rng(0)
    sizes = dict(zip("abdehknstv", range(2, 12), strict=True)) | {"t": 5}
    left, right = (
        tf.constant(rng.normal(size=[sizes[letter] for letter in side]), tf.float32)
        for side in equation.split("->")[0].split(",")
    )
    run = tf.function(lambda: tpu.einsum(equation, left, right), jit_compile=True)
    np.testing.assert_allclose(run(), tf.einsum(equation, left, right), rtol=1e-5, atol=1e-5)
