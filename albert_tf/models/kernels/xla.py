"""The XLA programs of the fused operations, which pass over their tensors once or a few times.

On a CPU, XLA's own versions of three operations are slow, and these programs replace them: rounding
to bfloat16, sums along rows, and a softmax cross-entropy whose gradient takes a second pass.
"""

import collections
from collections.abc import Callable

import tensorflow as tf

from albert_tf.models.kernels import target
from albert_tf.models.kernels.plain import dropped, normalized_sum, rotation

# tanh-GELU is x * sigmoid(x * (A + B * x^2)), A = 2 sqrt(2 / pi), B = 0.044715 A.
_A = 1.5957691216057308
_B = 0.044715 * _A
SMALL = 2**14  # elements


def program(function: Callable) -> Callable:
    """Compile `function` as one XLA program, except for tensors too small to repay compiling."""
    # One function for each target, since they need different traces.
    compiled: dict[str, Callable] = collections.defaultdict(
        lambda: tf.function(function, jit_compile=True, autograph=False)
    )

    def call(first: tf.Tensor, *rest: object) -> object:
        size = first.shape.num_elements()
        if size is not None and size < SMALL:
            return function(first, *rest)
        return compiled[target.kind()](first, *rest)

    return call


def round_to(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Round float32 x to the nearest number in `dtype`.

    XLA's own rounding to bfloat16 tests each number for NaN. That prevents vectorization on CPUs,
    and GELU takes twice the time. Here the bits are rounded as integers. Infinities are kept, and
    so is NaN as sums and products produce it. A NaN with large bits, as tf.math.log produces it,
    would become 0.
    """
    if dtype != tf.bfloat16 or not target.is_cpu():
        return tf.cast(x, dtype)
    bits, half = tf.bitcast(x, tf.uint32), tf.constant(16, tf.uint32)
    odd = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, half), tf.constant(1, tf.uint32))
    rounded = bits + (odd + tf.constant(0x7FFF, tf.uint32))  # half to even
    return tf.bitcast(tf.cast(tf.bitwise.right_shift(rounded, half), tf.uint16), dtype)


def _gelu_and_slope(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return GELU in its tanh form and its derivative."""
    s = 0.5 + 0.5 * tf.tanh(x * (_A / 2 + _B / 2 * x * x))  # sigmoid(x * (A + B x^2))
    return x * s, s * (1.0 + x * (1.0 - s) * (_A + 3.0 * _B * x * x))


@program
def gelu(x: tf.Tensor) -> tf.Tensor:
    """Apply GELU in its tanh form."""
    wide = tf.cast(x, tf.float32)
    return round_to(_gelu_and_slope(wide)[0], x.dtype)


@program
def gelu_gradient(x: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    """Return the gradient of `gelu` with respect to x."""
    wide = tf.cast(x, tf.float32)
    return round_to(tf.cast(upstream, tf.float32) * _gelu_and_slope(wide)[1], x.dtype)


def _row_sums(x: tf.Tensor) -> tf.Tensor:
    """Return the row sums of [M, N]: [M, 1].

    XLA for CPUs takes longer for a sum along rows than for this product.
    """
    if not target.is_cpu():
        return tf.reduce_sum(x, -1, keepdims=True)
    return tf.matmul(x, tf.ones([tf.shape(x)[1], 1]))


@program
def gated_gelu(x: tf.Tensor) -> tf.Tensor:
    """Return gelu(gate) * value of [M, 2 F]."""
    gate, value = tf.split(tf.cast(x, tf.float32), 2, -1)
    return round_to(_gelu_and_slope(gate)[0] * value, x.dtype)


@program
def gated_gelu_gradient(x: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    """Return the gradient of `gated_gelu` with respect to x."""
    gate, value = tf.split(tf.cast(x, tf.float32), 2, -1)
    upstream = tf.cast(upstream, tf.float32)
    activated, slope = _gelu_and_slope(gate)
    return round_to(tf.concat([upstream * value * slope, upstream * activated], -1), x.dtype)


@program
def weighted_cross_entropy(
    logits: tf.Tensor, bias: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, dtype: tf.DType
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the sums of `linear_cross_entropy` and the gradients of the logits and the bias."""
    logits = tf.cast(logits, tf.float32) + bias
    size = tf.shape(bias)[0]
    is_valid = (labels >= 0) & (labels < size)
    own = tf.gather(logits, tf.where(is_valid, labels, 0), batch_dims=1)[:, None]
    piece, label, weight = tf.range(size)[None], labels[:, None], weights[:, None]
    is_before = (logits > own) | ((logits == own) & (piece < label))
    is_right = _row_sums(tf.cast(is_before, tf.float32)) == 0
    largest = tf.reduce_max(logits, -1, keepdims=True)
    exponentials = tf.exp(logits - largest)
    total = _row_sums(exponentials)
    losses = tf.where(is_valid[:, None], tf.math.log(total) + largest - own, float("nan"))
    d_logits = exponentials * (weight / total) - tf.where(piece == label, weight, 0.0)
    right = tf.cast(is_right & is_valid[:, None], tf.float32)
    sums = tf.stack([tf.reduce_sum(losses * weight), tf.reduce_sum(right * weight)])
    return sums, round_to(d_logits, dtype), tf.reduce_sum(d_logits, 0)


@program
def softmax(logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Return the softmax of logits + mask over the last axis, in the dtype of the logits."""
    wide = tf.cast(logits, tf.float32) + mask
    exponentials = tf.exp(wide - tf.reduce_max(wide, -1, keepdims=True))
    rows = tf.reshape(exponentials, [-1, tf.shape(wide)[-1]])
    normal = tf.reshape(rows / _row_sums(rows), tf.shape(wide))
    return round_to(tf.ensure_shape(normal, wide.shape), logits.dtype)


@program
def softmax_gradient(y: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    """Return the gradient of a softmax with respect to its logits, from its result y."""
    wide = tf.cast(y, tf.float32)
    product = wide * tf.cast(upstream, tf.float32)
    return round_to(product - wide * tf.reduce_sum(product, -1, keepdims=True), y.dtype)


dropout = program(dropped)


def _product_mean(x: tf.Tensor) -> tf.Tensor:
    """Return the same as `plain.row_mean`, computed with `_row_sums`."""
    return _row_sums(x) / x.shape[1]


@program
def norm(
    x: tf.Tensor,
    update: tf.Tensor | None,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    key: tf.Tensor | None,
    eps: float,
    rate: float,
) -> tf.Tensor:
    """Compute `fused.add_dropout_norm`."""
    normal, _ = normalized_sum(x, update, key, eps, rate, _product_mean)
    return round_to(normal * gamma + beta, x.dtype)


@program
def norm_gradient(
    x: tf.Tensor,
    update: tf.Tensor | None,
    gamma: tf.Tensor,
    key: tf.Tensor | None,
    upstream: tf.Tensor,
    eps: float,
    rate: float,
) -> tuple[tf.Tensor, ...]:
    """Return the gradients of `norm` with respect to gamma, beta, x and `update` if it is given."""
    normal, inverse = normalized_sum(x, update, key, eps, rate, _product_mean)
    upstream = tf.cast(upstream, tf.float32)
    d_normal = upstream * gamma
    along = _product_mean(d_normal * normal)
    d_total = inverse * (d_normal - _product_mean(d_normal) - normal * along)
    d_gamma, d_beta = tf.reduce_sum(upstream * normal, 0), tf.reduce_sum(upstream, 0)
    d_x = round_to(d_total, x.dtype)
    if update is None:
        return d_gamma, d_beta, d_x
    d_update = d_total if key is None else dropped(d_total, rate, key)
    return d_gamma, d_beta, d_x, round_to(d_update, update.dtype)


@program
def rotate(x: tf.Tensor, sign: float) -> tf.Tensor:
    """Compute `rotation` as one program."""
    return rotation(x, sign, round_to)
