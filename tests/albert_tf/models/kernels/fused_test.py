"""Tests that the fused parts of training compute what the plain operations and their tape do."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.models.kernels import xla
from albert_tf.models.kernels.choice import TRAINING
from albert_tf.models.kernels.interface import PLAIN, Kernels, Norm
from albert_tf.models.kernels.plain import Dropout, rotation
from albert_tf.models.layers import common
from albert_tf.runtime import devices

KEY = tf.constant([11, 13])
CPU = TRAINING["CPU"]


@pytest.fixture(autouse=True, params=["compiled", "uncompiled"])
def small(request, monkeypatch):
    """Every proof for small tensors, which are not compiled, and as if they were large."""
    monkeypatch.setattr(xla, "SMALL", 0 if request.param == "compiled" else 2**30)


def value_and_gradients(function, *inputs):
    inputs = [tf.constant(x) for x in inputs]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = function(*inputs)
        loss = tf.reduce_sum(tf.cast(y, tf.float32) ** 3)
    return [y, *tape.gradient(loss, inputs)]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_gelu_and_its_slope():
    x = np.linspace(-12, 12, 1001, dtype=np.float32)
    plain = value_and_gradients(lambda x: tf.nn.gelu(x, approximate=True), x)
    for ours, theirs in zip(
        value_and_gradients(lambda x: CPU.activation(x, "gelu"), x), plain, strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_softmax_and_its_gradient():
    logits, mask = normal(3, 2, 5, 7), normal(3, 1, 1, 7, seed=1)
    plain = value_and_gradients(lambda x: tf.nn.softmax(x + mask), logits)
    ours = value_and_gradients(lambda x: CPU._softmax(x, tf.constant(mask)), logits)
    for left, right in zip(ours, plain, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_add_dropout_norm_and_its_gradients(rate):
    inputs = normal(5, 24), normal(5, 24, seed=1), normal(24, seed=2), normal(24, seed=3)
    dropout = Dropout.of(rate, KEY)

    def by_tape(x, update, gamma, beta):
        total = x + PLAIN.dropout(update, dropout)
        mean, variance = tf.nn.moments(total, -1, keepdims=True)
        return (total - mean) / tf.sqrt(variance + 1e-3) * gamma + beta

    def ours(x, update, gamma, beta):
        return CPU.add_norm(x, update, Norm(gamma, beta, 1e-3), dropout)

    pairs = zip(
        value_and_gradients(ours, *inputs), value_and_gradients(by_tape, *inputs), strict=True
    )
    for left, right in pairs:
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-4)


def test_layer_norm_alone():
    inputs = normal(5, 24), normal(24, seed=2), normal(24, seed=3)

    def by_tape(x, gamma, beta):
        mean, variance = tf.nn.moments(x, -1, keepdims=True)
        return (x - mean) / tf.sqrt(variance + 1e-3) * gamma + beta

    def ours(x, gamma, beta):
        return CPU.add_norm(x, None, Norm(gamma, beta, 1e-3))

    pairs = zip(
        value_and_gradients(ours, *inputs), value_and_gradients(by_tape, *inputs), strict=True
    )
    for left, right in pairs:
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-4)


def test_gated_gelu_and_its_gradient():
    x = 3 * normal(6, 16)

    def by_tape(x):
        return tf.nn.gelu(x[:, :8], approximate=True) * x[:, 8:]

    pairs = zip(
        value_and_gradients(lambda x: CPU.activation(x, "gelu", gated=True), x),
        value_and_gradients(by_tape, x),
        strict=True,
    )
    for left, right in pairs:
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


def test_rotation_is_a_product_of_complex_numbers():
    x = normal(2, 3, 5, 8)
    angle = np.arange(5)[:, None] / 10_000 ** (np.arange(4) / 4)
    turned = (x[..., :4] + 1j * x[..., 4:]) * np.exp(1j * angle)
    expected = np.concatenate([turned.real, turned.imag], -1)

    def by_tape(x):
        return rotation(x, 1.0)

    ours, gradient = value_and_gradients(CPU.rotate, x)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradient, value_and_gradients(by_tape, x)[1], rtol=1e-4, atol=1e-4)


def test_rounding_to_bfloat16_is_tensorflows():
    bits = np.random.default_rng(0).integers(0, 2**32, 200_000, np.uint32)
    exact_halves = (np.arange(2**16, dtype=np.uint32) << 16) + 0x8000
    x = np.concatenate([bits, exact_halves]).view(np.float32)
    x = np.concatenate([x[~np.isnan(x)], np.float32([0.0, -0.0, np.inf, -np.inf, np.nan])])
    ours = tf.function(lambda x: CPU.programs.round_to(x, tf.bfloat16))(x)
    expected = tf.bitcast(tf.cast(x, tf.bfloat16), tf.uint16)
    np.testing.assert_array_equal(tf.bitcast(ours, tf.uint16)[:-1], expected[:-1])
    assert np.isnan(tf.cast(ours, tf.float32)[-1])


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_every_program_passes_on_infinities_and_nan(bad):
    x = tf.cast(np.where(np.arange(32).reshape(2, 16) == 5, bad, normal(2, 16)), tf.bfloat16)
    ones = tf.ones([2, 16], tf.bfloat16)
    scale = tf.ones([16]), tf.zeros([16])
    seen = {
        "norm": CPU.add_norm(x, ones, Norm(*scale, 1e-6)),
        "softmax": CPU._softmax(tf.abs(x)[None], tf.zeros([1, 1, 16])),
        "gelu": CPU.activation(tf.abs(x), "gelu"),
        "gated": CPU.activation(x, "gelu", gated=True),
        "rotate": CPU.rotate(x[None, None]),
        "dropout": CPU.programs.dropout(x, Dropout(0.0, KEY)),
        "GELU's slope": CPU.programs.gelu_gradient(ones, x),
        "gate's slope": CPU.programs.gated_gelu_gradient(ones, x[:, :8]),
        "softmax's slope": CPU.programs.softmax_gradient(ones, x),
        "norm's slope": CPU.programs.norm_gradient(ones, x, scale[0], ones, 1e-6, None)[2],
        "loss": CPU.linear_cross_entropy(
            tf.cast(x, tf.float32),
            tf.ones([3, 16]),
            tf.zeros([3]),
            tf.zeros([2], tf.int32),
            tf.ones([2]),
            tf.bfloat16,
        )[0],
    }
    for name, y in seen.items():
        assert not np.isfinite(tf.cast(y, tf.float32)).all(), name


def test_bfloat16_in_and_out():
    x, update = (tf.cast(normal(3, 8, seed=seed), tf.bfloat16) for seed in (0, 1))
    ones, zeros = tf.ones([8]), tf.zeros([8])
    gradients = value_and_gradients(
        lambda x, update, gamma, beta: CPU.add_norm(
            x, update, Norm(gamma, beta, 1e-12), Dropout(0.1, KEY)
        ),
        x,
        update,
        ones,
        zeros,
    )
    half, full = tf.bfloat16, tf.float32
    assert [g.dtype for g in gradients] == [half, half, half, full, full]
    assert CPU.activation(x, "gelu", gated=True).dtype == CPU.rotate(x[None, None]).dtype == half
    assert CPU.activation(x, "gelu").dtype == half


def norm_of(ops, x, update, gamma, beta):
    return ops.add_norm(x, update, Norm(gamma, beta, 1e-3), Dropout(0.1, KEY))


def softmax_of(ops, x):
    return ops._softmax(x, tf.constant(normal(8, 1, 1, 20, seed=9)))


@pytest.mark.parametrize(
    ("operation", "shapes"),
    [
        (lambda ops, x: ops.activation(x, "gelu"), [(160, 64)]),
        (lambda ops, x: ops.activation(x, "gelu", gated=True), [(160, 64)]),
        (lambda ops, x: ops.rotate(x), [(8, 2, 20, 16)]),
        (softmax_of, [(8, 2, 20, 20)]),
        (norm_of, [(160, 64), (160, 64), (64,), (64,)]),
        (lambda ops, *args: ops.affine(*args), [(160, 64), (64, 16), (16,)]),
        (lambda ops, *args: ops.affine(*args), [(160, 16), (16, 64), (64,)]),
    ],
    ids=["gelu", "gated", "rotate", "softmax", "norm", "narrow", "wide"],
)
def test_bfloat16_gradients_are_those_of_the_plain_operations(operation, shapes):
    """On equal inputs; the plain operations compute in float32."""
    inputs = [tf.cast(2 * normal(*shape, seed=i), tf.bfloat16) for i, shape in enumerate(shapes)]

    def results(ops: Kernels, dtype):
        given = [tf.cast(x, tf.float32 if x.ndim == 1 else dtype) for x in inputs]
        with tf.GradientTape() as tape:
            tape.watch(given)
            y = operation(ops, *given)
            upstream = tf.cast(tf.cast(normal(*y.shape, seed=9), tf.bfloat16), y.dtype)
            gradients = tape.gradient(y, given, upstream)
        return [np.float32(tf.cast(x, tf.float32)) for x in (y, *gradients)]

    # Half a unit in the last place of the result is at most 2^-8 of it.
    for ours, plain in zip(results(CPU, tf.bfloat16), results(PLAIN, tf.float32), strict=True):
        assert np.linalg.norm(ours - plain) < 2**-8 * np.linalg.norm(plain)


def test_dropout_of_a_shape_known_later_is_the_same():
    ones = np.ones([3, 2, 5, 700], np.float32)
    later = tf.function(
        lambda x: CPU.dropout(x, Dropout(0.5, KEY)), [tf.TensorSpec([None] * 4)], autograph=False
    )
    np.testing.assert_array_equal(later(ones), CPU.dropout(tf.constant(ones), Dropout(0.5, KEY)))


def test_dropout_passes_the_gradient_where_it_kept():
    y, gradient = value_and_gradients(
        lambda x: CPU.dropout(x, Dropout(0.25, KEY)), np.ones([50, 40], "f")
    )
    # y is 0 or 4/3; d sum(y^3) / dx = 3 y^2 * 4/3 where kept.
    np.testing.assert_allclose(gradient, np.where(y == 0, 0, 3 * (4 / 3) ** 3), rtol=1e-5)


def test_keys_positions_and_steps_are_independent():
    """Correlations of keep masks under keys that differ as those of neighbouring sites do."""
    ones = tf.ones([200_000])

    def kept(*path: int) -> np.ndarray:
        key = tf.constant([0, 7])
        for number in path:
            key = common.fold_in(key, number)
        return CPU.dropout(ones, Dropout(0.5, key)).numpy() / 2

    masks = [kept(*path) for path in ((), (0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (1, 1))]
    masks += [
        CPU.dropout(ones, Dropout(0.5, tf.constant([0, step]))).numpy() / 2 for step in (8, 9)
    ]
    masks += [np.roll(masks[0], shift) for shift in (1, 2, 8, 64, 768)]
    correlations = np.corrcoef(masks)[np.triu_indices(len(masks), 1)]
    # A correlation of n independent bits has deviation 1 / sqrt(n); 105 pairs, five deviations.
    assert np.abs(correlations).max() < 5 / np.sqrt(200_000)
    assert all(abs(mask.mean() - 0.5) < 5 * 0.5 / np.sqrt(200_000) for mask in masks)


# A CPU without products of bfloat16 rounds their sums: only the other way is exact there.
@pytest.mark.parametrize("kernels", [CPU, PLAIN])
@pytest.mark.parametrize("has_products", sorted({False, devices.has_bfloat16_products()}))
def test_bfloat16_bias_gradient_is_a_sum_of_thousands(kernels, has_products, monkeypatch):
    monkeypatch.setattr(devices, "has_bfloat16_products", lambda: has_products)
    upstream = normal(4096, 8) + 0.5
    x, kernel = tf.zeros([4096, 4], tf.bfloat16), tf.zeros([4, 8], tf.bfloat16)
    bias = tf.zeros([8], tf.bfloat16)
    with tf.GradientTape() as tape:
        tape.watch(bias)
        loss = tf.reduce_sum(
            tf.cast(kernels.affine(x, kernel, bias), tf.float32) * tf.constant(upstream)
        )
    exact = tf.cast(tf.constant(upstream), tf.bfloat16).numpy().astype(np.float64).sum(0)
    gradient = tf.cast(tape.gradient(loss, bias), tf.float64)
    np.testing.assert_allclose(gradient, exact, rtol=2**-8)  # one rounding to eight bits


@pytest.mark.parametrize(("width", "units"), [(1024, 512), (32, 16), (16, 48), (1040, 520)])
def test_affine_and_its_gradients(width, units):
    inputs = normal(6, width), normal(width, units, seed=1) / units, normal(units, seed=2)
    plain = value_and_gradients(lambda x, kernel, bias: x @ kernel + bias, *inputs)
    for left, right in zip(value_and_gradients(CPU.affine, *inputs), plain, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-4)


@pytest.fixture(params=["CPU", "TPU"])
def ops(request: pytest.FixtureRequest) -> Kernels:
    return TRAINING[request.param]


LINEAR = normal(400, 32), normal(500, 32, seed=1) / 4, normal(500, seed=2)


def linear_cross_entropy(ops: Kernels, dtype: tf.DType):
    """Both sums, as a vector, and the gradients of the mean, of 400 rows with weights 0 to 3."""
    labels = tf.constant(np.arange(400, dtype=np.int32))
    weights = tf.constant(np.arange(400, dtype=np.float32) % 4)
    inputs = [tf.constant(x) for x in LINEAR]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        sums = ops.linear_cross_entropy(*inputs, labels, weights, dtype)
        loss = sums[0] / 517  # no number of bfloat16
    return sums.numpy(), tape.gradient(loss, inputs)


def test_linear_cross_entropy_is_that_of_the_logits(ops):
    sums, gradients = linear_cross_entropy(ops, tf.float32)
    plain_sums, plain_gradients = linear_cross_entropy(PLAIN, tf.float32)
    np.testing.assert_allclose(sums, plain_sums, rtol=1e-5)
    for ours, plain in zip(gradients, plain_gradients, strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-7)


def slope(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The factor of `theirs` that is closest to `ours`: 1 if roundings go either way."""
    return float(np.sum(ours * theirs) / np.sum(theirs**2))


def test_linear_cross_entropy_in_bfloat16(ops):
    narrow = [tf.cast(x, tf.bfloat16) for x in LINEAR[:2]]
    product, exact_product = (
        tf.matmul(*(tf.cast(x, dtype) for x in narrow), transpose_b=True)
        for dtype in (tf.bfloat16, tf.float32)
    )
    # Without AVX-512, TensorFlow's product drops the bits of its result instead of rounding.
    of_product = slope(tf.cast(product, tf.float32).numpy(), exact_product.numpy())
    sums, gradients = linear_cross_entropy(ops, tf.bfloat16)
    exact_sums, exact = linear_cross_entropy(ops, tf.float32)
    np.testing.assert_allclose(sums[0], exact_sums[0], rtol=2**-8)
    for ours, theirs in zip(gradients, exact, strict=True):
        assert np.linalg.norm(ours - theirs) < 2**-6 * np.linalg.norm(theirs)
        # Roundings must not all go one way, as those of a common factor would.
        expected = [pytest.approx(each, abs=5e-4) for each in (1, of_product)]
        assert slope(ours.numpy(), theirs.numpy()) in expected


def test_linear_cross_entropy_of_ties_and_of_labels_outside(ops):
    table, ones = tf.constant([[1.0], [3.0], [3.0]]), tf.ones([1])
    bias = tf.zeros([3])

    def sums(label: int) -> list[float]:
        answer = ops.linear_cross_entropy(
            tf.ones([1, 1]), table, bias, tf.constant([label]), ones, tf.float32
        )
        return answer.numpy().tolist()

    # exp(1 - 3) + 2 exp(0) = 2.1353; the first of the largest is the answer.
    assert sums(1) == pytest.approx([np.log(2.1353353), 1.0])
    assert sums(2) == pytest.approx([np.log(2.1353353), 0.0])
    assert np.isnan(sums(3)[0]) and np.isnan(sums(-1)[0])


def test_a_loss_on_a_tpu_is_at_most_75():
    """The label's logit is 100 less than the other; exp(100) would not be finite in float32."""
    bias = tf.constant([0.0, 100.0])
    given = tf.ones([1, 1]), tf.zeros([2, 1]), bias, tf.constant([0]), tf.ones([1]), tf.float32
    with tf.GradientTape() as tape:
        tape.watch(bias)
        loss = TRAINING["TPU"].linear_cross_entropy(*given)[0]
    assert float(loss) == pytest.approx(75)
    np.testing.assert_allclose(tape.gradient(loss, bias), [-1, 1], atol=1e-6)
