"""Operations for training that make one pass forward and one backward, and keep little memory.

TensorFlow runs an activation, a dropout or a LayerNorm with its gradient as two dozen operations,
each of which reads and writes the whole tensor. They take a quarter of a training step on a CPU.
Here, each is one XLA program forward and one backward; most keep only the input of the operation
and recompute the rest. The device's own library still computes the matrix products around them.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from albert_tf.models.kernels import target, xla, xla_internals
from albert_tf.runtime import devices


def kept(*tensors: tf.Tensor) -> Sequence[tf.Tensor]:
    """Return what a gradient reads, as new tensors where one program holds the whole step.

    XLA would otherwise notice that forward and backward pass compute the same, and keep the float32
    results instead of these tensors.
    """
    return tensors if target.is_cpu() else xla_internals.barrier(*tensors)


def gelu(x: tf.Tensor) -> tf.Tensor:
    """Apply GELU in its tanh form to any shape and floating dtype, computed in float32."""

    @tf.custom_gradient
    def op(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        return xla.gelu(x), lambda upstream: xla.gelu_gradient(*kept(x), upstream)

    return op(x)


def gated_gelu(x: tf.Tensor) -> tf.Tensor:
    """Return gelu(gate) * value of x [M, 2 F], with the gate first: [M, F], computed in float32."""

    @tf.custom_gradient
    def op(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        return xla.gated_gelu(x), lambda upstream: xla.gated_gelu_gradient(*kept(x), upstream)

    return op(x)


def rotate(x: tf.Tensor) -> tf.Tensor:
    """Compute `plain.rotation`; its gradient is the inverse rotation."""

    @tf.custom_gradient
    def op(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        return xla.rotate(x, 1.0), lambda upstream: xla.rotate(upstream, -1.0)

    return op(x)


def affine(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Return x W + b of [M, K], [K, N] and [N], with a gradient of W that suits narrow outputs.

    oneDNN runs at half the speed if the result of a product has few columns. The gradient x^T dy
    has few if W is tall and narrow, so it is then computed as (dy^T x)^T.
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
    """Return the column sums of [M, N]: [N], accumulated in float32.

    TensorFlow sums bfloat16 numbers in bfloat16. A product of them accumulates in float32 on CPUs
    with native bfloat16 products; with AVX2, it is off by 0.6 %.
    """
    if not target.is_cpu():
        return tf.cast(tf.reduce_sum(tf.cast(x, tf.float32), 0), x.dtype)
    wide = x if devices.has_bfloat16_products() else tf.cast(x, tf.float32)
    return tf.cast(tf.matmul(tf.ones([1, tf.shape(x)[0]], wide.dtype), wide)[0], x.dtype)


def linear_cross_entropy(
    x: tf.Tensor,
    table: tf.Tensor,
    bias: tf.Tensor,
    labels: tf.Tensor,
    weights: tf.Tensor,
    dtype: tf.DType,
) -> tf.Tensor:
    """Compute `Kernels.linear_cross_entropy`.

    The three matrix products are in `dtype`, and the forward pass computes the gradient of the
    logits, so that the tape keeps only that gradient.
    """

    @tf.custom_gradient
    def op(x: tf.Tensor, table: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        narrow_x, narrow_table = tf.cast(x, dtype), tf.cast(table, dtype)
        logits = tf.matmul(narrow_x, narrow_table, transpose_b=True)
        sums, *gradients = xla.weighted_cross_entropy(logits, bias, labels, weights, dtype)
        d_logits, d_bias = kept(*gradients)

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            scaled = tf.cast(upstream[0] * x, dtype)  # 1 / count alone would be rounded too
            d_x = tf.cast(tf.matmul(d_logits, narrow_table), tf.float32)
            d_table = tf.cast(tf.matmul(d_logits, scaled, transpose_a=True), tf.float32)
            return upstream[0] * d_x, d_table, upstream[0] * d_bias

        return sums, gradient

    return op(x, table, bias)


def softmax(logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Return the softmax of logits + mask over the last axis, computed in float32.

    The result has the dtype of the logits. The gradient needs only the result; with bfloat16, that
    is a third of what a tape would keep.
    """

    @tf.custom_gradient
    def op(logits: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        (y,) = kept(xla.softmax(logits, mask))
        return y, lambda upstream: xla.softmax_gradient(y, upstream)

    return op(logits)


def dropout(x: tf.Tensor, rate: float, key: tf.Tensor) -> tf.Tensor:
    """Compute `plain.dropped`; the gradient draws the mask again."""

    @tf.custom_gradient
    def op(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        return xla.dropout(x, rate, key), lambda upstream: xla.dropout(upstream, rate, key)

    return op(x)


def add_dropout_norm(
    x: tf.Tensor,
    update: tf.Tensor | None,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    eps: float,
    rate: float,
    key: tf.Tensor | None,
) -> tf.Tensor:
    """Return LayerNorm(x + dropout(update)) of [M, H], computed in float32, in x's dtype.

    If `update` is None, return LayerNorm(x). If `key` is None, there is no dropout.
    """

    @tf.custom_gradient
    def op(gamma: tf.Tensor, beta: tf.Tensor, *added: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
            inputs = kept(*added)
            own = inputs if len(inputs) == 2 else (*inputs, None)
            return xla.norm_gradient(*own, gamma, key, upstream, eps, rate)

        return xla.norm(x, update, gamma, beta, key, eps, rate), gradient

    return op(gamma, beta, x, *([] if update is None else [update]))
