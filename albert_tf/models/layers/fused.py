"""The element-wise parts of training: one pass forward, one backward, nothing but inputs kept.

TensorFlow runs an activation, a dropout or a LayerNorm with its gradient as two dozen operations,
each of which reads and writes the whole tensor: a quarter of a training step on a CPU. Here each is
one XLA program forward and one backward, which keeps the operation's input and recomputes the rest.
The matrix products around them stay with the device's own library.
"""

from collections.abc import Callable

import tensorflow as tf

# tanh-GELU is x * sigmoid(x * (A + B * x^2)), A = 2 sqrt(2 / pi), B = 0.044715 A.
_A = 1.5957691216057308
_B = 0.044715 * _A
SMALL = 2**14  # elements


def gelu(x: tf.Tensor) -> tf.Tensor:
    """GELU in its tanh form; any shape and floating dtype, computed in float32."""

    @tf.custom_gradient
    def op(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        return _gelu(x), lambda upstream: _gelu_gradient(x, upstream)

    return op(x)


def affine(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """x W + b of [M, K], [K, N] and [N], with a gradient for W that suits narrow outputs.

    oneDNN's product is half as fast where the result has few columns, as x^T dy has where W is tall
    and narrow: then (dy^T x)^T it is.
    """
    width, units = kernel.shape
    is_narrow = units <= 512 and width >= 2 * units

    @tf.custom_gradient
    def op(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            d_x = tf.matmul(upstream, kernel, transpose_b=True)
            if is_narrow:
                d_kernel = tf.transpose(tf.matmul(upstream, x, transpose_a=True))
            else:
                d_kernel = tf.matmul(x, upstream, transpose_a=True)
            return d_x, d_kernel, _column_sums(upstream)

        return tf.nn.bias_add(tf.matmul(x, kernel), bias), gradient

    return op(x, kernel, bias)


def _column_sums(x: tf.Tensor) -> tf.Tensor:
    """[M, N] -> [N], added in float32: CPUs add thousands of bfloat16 numbers in bfloat16."""
    return tf.cast(tf.matmul(tf.ones([1, tf.shape(x)[0]]), tf.cast(x, tf.float32))[0], x.dtype)


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """-log softmax(logits)[label], and whether the label's logit is the (first) largest.

    Args:
      logits: float32 [N, V].
      labels: int32 [N].

    Returns:
      float32 [N], NaN where the label is not in [0, V), and bool [N].
    """

    @tf.custom_gradient
    def op(logits: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], Callable]:
        loss, total, is_right = _cross_entropy(logits, labels)

        def gradient(upstream: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
            return _cross_entropy_gradient(logits, labels, total, upstream)

        return (loss, is_right), gradient

    return op(logits)


def softmax(logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """softmax(logits + mask) over the last axis, in float32, in the logits' dtype.

    The result is all that the gradient needs; with bfloat16 that is a third of what a tape keeps.
    """

    @tf.custom_gradient
    def op(logits: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        y = tf.cast(tf.nn.softmax(tf.cast(logits, tf.float32) + mask), logits.dtype)
        return y, lambda upstream: _softmax_gradient(y, upstream)

    return op(logits)


def dropout(x: tf.Tensor, rate: float, key: tf.Tensor) -> tf.Tensor:
    """Zeroes each element with probability `rate`, scales the rest by 1 / (1 - rate).

    What is zeroed is a hash of (key, position), the same on every device and in a recomputation.

    Args:
      x: floating tensor of any shape of less than 2^31 elements.
      key: int32 [2], or [3] where x is one of equal parts along the first axis: the third is its
        number.
    """

    @tf.custom_gradient
    def op(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        return _dropout(x, rate, key), lambda upstream: _dropout(upstream, rate, key)

    return op(x)


def add_dropout_norm(
    x: tf.Tensor,
    update: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    eps: float,
    rate: float,
    key: tf.Tensor | None,
) -> tf.Tensor:
    """LayerNorm(x + dropout(update)), [M, H], in float32, in x's dtype; no dropout without key."""

    @tf.custom_gradient
    def op(
        x: tf.Tensor, update: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor
    ) -> tuple[tf.Tensor, Callable]:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return _norm_gradient(x, update, gamma, key, upstream, eps, rate)

        return _norm(x, update, gamma, beta, key, eps, rate), gradient

    return op(x, update, gamma, beta)


def _island(function: Callable) -> Callable:
    """One XLA program, but for tensors so small that compiling takes longer than it ever saves."""
    compiled = tf.function(function, jit_compile=True, autograph=False)

    def call(first: tf.Tensor, *rest: object) -> object:
        size = first.shape.num_elements()
        return (function if size is not None and size < SMALL else compiled)(first, *rest)

    return call


@_island
def _gelu(x: tf.Tensor) -> tf.Tensor:
    wide = tf.cast(x, tf.float32)
    return tf.cast(wide * tf.sigmoid(wide * (_A + _B * wide * wide)), x.dtype)


@_island
def _gelu_gradient(x: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    wide = tf.cast(x, tf.float32)
    s = tf.sigmoid(wide * (_A + _B * wide * wide))
    slope = s * (1.0 + wide * (1.0 - s) * (_A + 3.0 * _B * wide * wide))
    return tf.cast(tf.cast(upstream, tf.float32) * slope, x.dtype)


@_island
def _cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    largest = tf.reduce_max(logits, -1, keepdims=True)
    total = tf.math.log(tf.reduce_sum(tf.exp(logits - largest), -1)) + largest[:, 0]
    size = tf.shape(logits)[-1]
    is_valid = (labels >= 0) & (labels < size)
    own = tf.gather(logits, tf.where(is_valid, labels, 0), batch_dims=1)
    first = tf.reduce_min(tf.where(logits == largest, tf.range(size), size), -1)
    return tf.where(is_valid, total - own, float("nan")), total, first == labels


@_island
def _cross_entropy_gradient(
    logits: tf.Tensor, labels: tf.Tensor, total: tf.Tensor, upstream: tf.Tensor
) -> tf.Tensor:
    is_label = tf.range(tf.shape(logits)[-1])[None] == labels[:, None]
    probability = tf.exp(logits - total[:, None])
    return (probability - tf.cast(is_label, tf.float32)) * upstream[:, None]


@_island
def _softmax_gradient(y: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    wide = tf.cast(y, tf.float32)
    product = wide * tf.cast(upstream, tf.float32)
    return tf.cast(product - wide * tf.reduce_sum(product, -1, keepdims=True), y.dtype)


def _drop(x: tf.Tensor, rate: float, key: tf.Tensor) -> tf.Tensor:
    width = x.shape[-1] or tf.shape(x)[-1]
    rows, columns = tf.range(tf.size(x) // width), tf.range(width)
    if key.shape[0] == 3:  # which of equal parts of the batch this is: the masks are the whole's
        rows += key[2] * tf.size(rows)
    # The key goes between row and column: they alone would be folded into a constant of x's size.
    rows = tf.reshape(rows * width + key[0], tf.concat([tf.shape(x)[:-1], [1]], 0))
    bits = _mix(_mix(tf.bitcast(rows + columns, tf.uint32)) ^ tf.bitcast(key[1], tf.uint32))
    kept = x * tf.cast(1 / (1 - rate), x.dtype)
    return tf.where(bits >= tf.constant(round(rate * 2**32), tf.uint32), kept, tf.zeros_like(x))


_dropout = _island(_drop)


def _mix(bits: tf.Tensor) -> tf.Tensor:
    """A bijection of 32 bits in which each bit of the input turns about half of the output's."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        bits ^= tf.bitwise.right_shift(bits, tf.constant(shift, tf.uint32))
        bits *= tf.constant(factor, tf.uint32)
    return bits ^ tf.bitwise.right_shift(bits, tf.constant(16, tf.uint32))


def normalized_sum(
    x: tf.Tensor, update: tf.Tensor, key: tf.Tensor | None, eps: float, rate: float = 0.0
) -> tuple[tf.Tensor, tf.Tensor]:
    """The normalised sum [M, H] and 1 / standard deviation [M, 1], float32."""
    update = tf.cast(update, tf.float32)
    total = tf.cast(x, tf.float32) + (update if key is None else _drop(update, rate, key))
    centred = total - tf.reduce_mean(total, -1, keepdims=True)
    inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), -1, keepdims=True) + eps)
    return centred * inverse, inverse


@_island
def _norm(
    x: tf.Tensor,
    update: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    key: tf.Tensor | None,
    eps: float,
    rate: float,
) -> tf.Tensor:
    return tf.cast(normalized_sum(x, update, key, eps, rate)[0] * gamma + beta, x.dtype)


@_island
def _norm_gradient(
    x: tf.Tensor,
    update: tf.Tensor,
    gamma: tf.Tensor,
    key: tf.Tensor | None,
    upstream: tf.Tensor,
    eps: float,
    rate: float,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    normal, inverse = normalized_sum(x, update, key, eps, rate)
    upstream = tf.cast(upstream, tf.float32)
    d_normal = upstream * gamma
    mean = tf.reduce_mean(d_normal, -1, keepdims=True)
    along = tf.reduce_mean(d_normal * normal, -1, keepdims=True)
    d_total = inverse * (d_normal - mean - normal * along)
    d_update = d_total if key is None else _drop(d_total, rate, key)
    return (
        tf.cast(d_total, x.dtype),
        tf.cast(d_update, update.dtype),
        tf.reduce_sum(upstream * normal, 0),
        tf.reduce_sum(upstream, 0),
    )
