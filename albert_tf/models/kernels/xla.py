"""The XLA programs of the fused operations, which pass over their tensors once or a few times."""

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from albert_tf.models.kernels import xla_internals
from albert_tf.models.kernels.plain import Dropout, dropped, normalized_sum, rotation

# tanh-GELU is x * sigmoid(x * (A + B * x^2)), A = 2 sqrt(2 / pi), B = 0.044715 A.
_A = 1.5957691216057308
_B = 0.044715 * _A
SMALL = 2**14  # elements


def program(method: Callable) -> Callable:
    """Compile a method as one XLA program, except for tensors too small to repay compiling."""
    compiled = tf.function(method, jit_compile=True, autograph=False)

    @functools.wraps(method)
    def call(self: "Programs", first: tf.Tensor, *rest: object) -> object:
        size = first.shape.num_elements()
        if size is not None and size < SMALL:
            return method(self, first, *rest)
        return compiled.__get__(self, type(self))(first, *rest)

    return call


def _gelu_and_slope(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return GELU in its tanh form and its derivative."""
    s = 0.5 + 0.5 * tf.tanh(x * (_A / 2 + _B / 2 * x * x))  # sigmoid(x * (A + B x^2))
    return x * s, s * (1.0 + x * (1.0 - s) * (_A + 3.0 * _B * x * x))


class Programs:
    """The programs as parts of one that holds a whole step, on any device.

    `CpuPrograms` overrides the first four methods, which are parts of the others.
    """

    def round_to(self, x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """Round float32 x to the nearest number in `dtype`."""
        return tf.cast(x, dtype)

    def row_sums(self, x: tf.Tensor) -> tf.Tensor:
        """Return the row sums of [M, N]: [M, 1]."""
        return tf.reduce_sum(x, -1, keepdims=True)

    def column_sums(self, x: tf.Tensor) -> tf.Tensor:
        """Return the column sums of [M, N]: [N], accumulated in float32, in x's dtype."""
        return tf.cast(tf.reduce_sum(tf.cast(x, tf.float32), 0), x.dtype)

    def for_gradient(self, *tensors: tf.Tensor) -> Sequence[tf.Tensor]:
        """Return what a gradient reads, as new tensors.

        XLA would otherwise notice that forward and backward pass compute the same, and keep the
        float32 results instead of these tensors.
        """
        return xla_internals.barrier(*tensors)

    def row_means(self, x: tf.Tensor) -> tf.Tensor:
        """Return the same as `plain.row_mean`, computed with `row_sums`."""
        return self.row_sums(x) / x.shape[1]

    @program
    def dropout(self, x: tf.Tensor, dropout: Dropout) -> tf.Tensor:
        """Compute `plain.dropped`."""
        return dropped(x, dropout)

    @program
    def gelu(self, x: tf.Tensor) -> tf.Tensor:
        """Apply GELU in its tanh form."""
        wide = tf.cast(x, tf.float32)
        return self.round_to(_gelu_and_slope(wide)[0], x.dtype)

    @program
    def gelu_gradient(self, x: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
        """Return the gradient of `gelu` with respect to x."""
        wide = tf.cast(x, tf.float32)
        return self.round_to(tf.cast(upstream, tf.float32) * _gelu_and_slope(wide)[1], x.dtype)

    @program
    def gated_gelu(self, x: tf.Tensor) -> tf.Tensor:
        """Return gelu(gate) * value of [M, 2 F]."""
        gate, value = tf.split(tf.cast(x, tf.float32), 2, -1)
        return self.round_to(_gelu_and_slope(gate)[0] * value, x.dtype)

    @program
    def gated_gelu_gradient(self, x: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
        """Return the gradient of `gated_gelu` with respect to x."""
        gate, value = tf.split(tf.cast(x, tf.float32), 2, -1)
        upstream = tf.cast(upstream, tf.float32)
        activated, slope = _gelu_and_slope(gate)
        return self.round_to(
            tf.concat([upstream * value * slope, upstream * activated], -1), x.dtype
        )

    @program
    def weighted_cross_entropy(
        self,
        logits: tf.Tensor,
        bias: tf.Tensor,
        labels: tf.Tensor,
        weights: tf.Tensor,
        dtype: tf.DType,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return the sums of `linear_cross_entropy`, and the gradients of logits and bias."""
        logits = tf.cast(logits, tf.float32) + bias
        size = tf.shape(bias)[0]
        is_valid = (labels >= 0) & (labels < size)
        label_logit = tf.gather(logits, tf.where(is_valid, labels, 0), batch_dims=1)[:, None]
        piece, label, weight = tf.range(size)[None], labels[:, None], weights[:, None]
        is_before = (logits > label_logit) | ((logits == label_logit) & (piece < label))
        is_right = self.row_sums(tf.cast(is_before, tf.float32)) == 0
        largest = tf.reduce_max(logits, -1, keepdims=True)
        exponentials = tf.exp(logits - largest)
        total = self.row_sums(exponentials)
        losses = tf.where(
            is_valid[:, None], tf.math.log(total) + largest - label_logit, float("nan")
        )
        d_logits = exponentials * (weight / total) - tf.where(piece == label, weight, 0.0)
        right = tf.cast(is_right & is_valid[:, None], tf.float32)
        sums = tf.stack([tf.reduce_sum(losses * weight), tf.reduce_sum(right * weight)])
        return sums, self.round_to(d_logits, dtype), tf.reduce_sum(d_logits, 0)

    @program
    def softmax(self, logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Return the softmax of logits + mask over the last axis, in the dtype of the logits."""
        wide = tf.cast(logits, tf.float32) + mask
        exponentials = tf.exp(wide - tf.reduce_max(wide, -1, keepdims=True))
        rows = tf.reshape(exponentials, [-1, tf.shape(wide)[-1]])
        normal = tf.reshape(rows / self.row_sums(rows), tf.shape(wide))
        return self.round_to(tf.ensure_shape(normal, wide.shape), logits.dtype)

    @program
    def softmax_gradient(self, y: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
        """Return the gradient of a softmax with respect to its logits, from its result y."""
        wide = tf.cast(y, tf.float32)
        product = wide * tf.cast(upstream, tf.float32)
        return self.round_to(product - wide * tf.reduce_sum(product, -1, keepdims=True), y.dtype)

    @program
    def norm(
        self,
        x: tf.Tensor,
        update: tf.Tensor | None,
        gamma: tf.Tensor,
        beta: tf.Tensor,
        eps: float,
        dropout: Dropout | None,
    ) -> tf.Tensor:
        """Compute `Kernels.add_norm`."""
        normal, _ = normalized_sum(x, update, eps, dropout, self.row_means)
        return self.round_to(normal * gamma + beta, x.dtype)

    @program
    def norm_gradient(
        self,
        x: tf.Tensor,
        update: tf.Tensor | None,
        gamma: tf.Tensor,
        upstream: tf.Tensor,
        eps: float,
        dropout: Dropout | None,
    ) -> tuple[tf.Tensor, ...]:
        """Return the gradients of gamma, beta, x and, if it is given, `update` of `norm`."""
        normal, inverse = normalized_sum(x, update, eps, dropout, self.row_means)
        upstream = tf.cast(upstream, tf.float32)
        d_normal = upstream * gamma
        along = self.row_means(d_normal * normal)
        d_total = inverse * (d_normal - self.row_means(d_normal) - normal * along)
        d_gamma, d_beta = tf.reduce_sum(upstream * normal, 0), tf.reduce_sum(upstream, 0)
        d_x = self.round_to(d_total, x.dtype)
        if update is None:
            return d_gamma, d_beta, d_x
        d_update = d_total if dropout is None else dropped(d_total, dropout)
        return d_gamma, d_beta, d_x, self.round_to(d_update, update.dtype)

    @program
    def rotate(self, x: tf.Tensor, sign: float) -> tf.Tensor:
        """Compute `rotation` as one program."""
        return rotation(x, sign, self.round_to)
