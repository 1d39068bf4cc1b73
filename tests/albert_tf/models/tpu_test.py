"""The operations for TPUs, and the plain ones for GPUs, equal those for CPUs; all run on a CPU."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.models.layers import fused, target, tpu, xla
from albert_tf.models.layers.encoder_block import EncoderBlock
from albert_tf.models.pretrainer import AlbertPretrainer

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
DROPOUT = {"hidden_dropout": 0.1, "attention_dropout": 0.1}
MODERN = {"norm": "pre", "positions": "rotary", "ffn": "gated"}
BATCH, LENGTH, SLOTS = 4, 24, 5


def batch() -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Inputs with padding, and labels with an empty slot."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(12, LENGTH + 1, (BATCH, 1))
    inputs = {
        "input_word_ids": rng.integers(5, 300, (BATCH, LENGTH)),
        "input_mask": np.arange(LENGTH) < lengths,
        "input_type_ids": rng.integers(0, 2, (BATCH, LENGTH)),
        "masked_lm_positions": rng.integers(0, 12, (BATCH, SLOTS)),
    }
    labels = {
        "masked_lm_ids": tf.constant(rng.integers(5, 300, (BATCH, SLOTS)), tf.int32),
        "masked_lm_weights": tf.constant([[1.0] * (SLOTS - 1) + [0.0]] * BATCH),
    }
    return {name: tf.constant(value, tf.int32) for name, value in inputs.items()}, labels


def step(policy: str, device: str = "CPU", **changes) -> tuple[np.ndarray, list[np.ndarray]]:
    """The sums of the masked LM, and the gradients of both losses in one program."""
    tf_keras.utils.set_random_seed(0)
    model = AlbertPretrainer(CONFIG.replace(**changes), dtype=policy).create_weights()
    inputs, labels = batch()

    @tf.function(jit_compile=True, autograph=False)
    def run() -> tuple[tf.Tensor, list[tf.Tensor]]:
        with target.tracing_for(device):
            with tf.GradientTape() as tape:
                key = tf.constant([3, 4])
                outputs = model(inputs, training=True, dropout_key=key, labels=labels)
                loss = outputs["mlm_sums"][0] + tf.reduce_sum(outputs["pair_logits"][:, 0])
            gradients = tape.gradient(loss, model.trainable_variables)
            return outputs["mlm_sums"], list(map(tf.convert_to_tensor, gradients))

    sums, gradients = run()
    return sums.numpy(), [gradient.numpy() for gradient in gradients]


@pytest.mark.slow  # each compiles two training steps with XLA
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(DROPOUT, id="dropout"),
        pytest.param(MODERN, id="modern"),
        pytest.param({"activation": "relu", "sharing": "none"}, id="relu, own weights"),
        pytest.param(
            DROPOUT | {"rematerialize": True, "rematerialize_chunks": 2}, id="rematerialize"
        ),
    ],
)
@pytest.mark.parametrize("device", ["TPU", "GPU"])
def test_losses_and_gradients_are_those_of_the_cpu(device, changes):
    sums, gradients = step("float32", device, **changes)
    wanted_sums, wanted = step("float32", **changes)
    np.testing.assert_allclose(sums, wanted_sums, rtol=1e-5)
    scale = max(np.linalg.norm(gradient) for gradient in wanted)
    for gradient, reference in zip(gradients, wanted, strict=True):
        # A softmax ignores the key's bias, whose gradient is rounding alone.
        tolerance = 1e-5 * np.linalg.norm(reference) + 1e-7 * scale
        assert np.linalg.norm(gradient - reference) <= tolerance


@pytest.mark.slow
def test_bfloat16_is_as_exact_as_on_a_cpu():
    _, exact = step("float32")
    errors = []
    for device in ("TPU", "CPU"):
        sums, gradients = step("mixed_bfloat16", device)
        assert np.isfinite(sums).all()
        differences = [a - b for a, b in zip(gradients, exact, strict=True)]
        errors.append(np.linalg.norm(np.concatenate([each.ravel() for each in differences])))
    scale = np.linalg.norm(np.concatenate([each.ravel() for each in exact]))
    assert errors[0] <= 1.2 * errors[1] < 0.05 * scale


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
    key = tf.constant([1, 2]) if rate else None
    mask = tf.constant([[0.0] * 6, [0.0] * 4 + [-10000.0] * 2])[:, None, None]

    def plain(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
        weights = tf.nn.softmax(tf.einsum("bsnd,btnd->bnst", q, k) + mask)
        weights = weights if key is None else xla.dropped(weights, rate, key)
        return tf.einsum("bnst,btnd->bsnd", weights, v)

    inputs = [normal(2, 6, 3, 4, seed=seed) for seed in range(3)]
    ours = gradients(lambda q, k, v: tpu.attention(q, k, v, mask, rate, key, parts), *inputs)
    assert_same(ours, gradients(plain, *inputs))


def test_dropout_in_blocks_of_chunks_is_that_of_the_whole_batch():
    q, k, v = (normal(4, 6, 3, 4, seed=seed) for seed in range(3))
    mask = np.zeros([4, 1, 1, 6], np.float32)

    def attention(rows: slice, key: list[int], parts: int) -> tf.Tensor:
        inputs = (tf.constant(x[rows]) for x in (q, k, v, mask))
        run = tf.function(tpu.attention, jit_compile=True, autograph=False)
        return run(*inputs, 0.5, tf.constant(key), parts)

    chunks = [attention(slice(2 * i, 2 * i + 2), [1, 2, i], 2) for i in range(2)]
    whole = attention(slice(4), [1, 2], 1)
    np.testing.assert_allclose(tf.concat(chunks, 0), whole, rtol=1e-5, atol=1e-6)


def head_gradients(device: str, labels: list[int], *inputs: np.ndarray) -> list[np.ndarray]:
    """The sums of the MLM head for two positions, and the gradients of x, table and bias."""

    def sums(*inputs: tf.Tensor) -> tf.Tensor:
        with target.tracing_for(device):
            weights = tf.constant([1.0, 0.5])
            return fused.linear_cross_entropy(*inputs, tf.constant(labels), weights, tf.float32)

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
    assert ours[0][0] == pytest.approx(1.5 * excess)  # by `fused` 1.5 * (excess + 1000)
    assert_same(ours[1:], head_gradients("CPU", labels, x, table, above)[1:])


def test_a_norm_and_both_of_its_twins():
    def ours(x: tf.Tensor, update: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
        key = tf.constant([1, 2])
        twins = tpu.add_dropout_norm(x, update, gamma, beta, 1e-12, 0.5, key)
        return twins.residual + 2.0 * twins.operand

    def plain(x: tf.Tensor, update: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
        total = x + xla.dropped(update, 0.5, tf.constant([1, 2]))
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
    block = EncoderBlock(CONFIG)
    block.build([None, None, CONFIG.hidden_size])
    x, mask = normal(2, 6, CONFIG.hidden_size), np.zeros([2, 1, 1, 6], np.float32)

    def gradient(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        with target.tracing_for("TPU"), tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(block(x, mask, training=True) ** 3)
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
