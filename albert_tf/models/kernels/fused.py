"""Operations for training that make one pass forward and one backward, and keep little memory.

TensorFlow runs an activation, a dropout or a LayerNorm with its gradient as two dozen operations,
each of which reads and writes the whole tensor. Here, each is one XLA program forward and one
backward, in about half of the time on a CPU ("Fused element-wise operations" in
docs/log/training.md). Most keep only the input of the operation and recompute the rest. The
device's own library still computes the matrix products around them.
"""

from collections.abc import Callable

import tensorflow as tf

from albert_tf.models.kernels.interface import Hidden, Kernels, Norm
from albert_tf.models.kernels.plain import Dropout
from albert_tf.models.kernels.xla import Programs


class FusedKernels(Kernels):
    """The fused operations inside one XLA program for a whole step, on any device (PJRT)."""

    programs = Programs()

    def affine(self, x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """Compute `Kernels.affine`, with a gradient of W that suits narrow outputs.

        oneDNN runs at half the speed if the result of a product has few columns. The gradient x^T
        dy has few if W is tall and narrow, so it is then computed as (dy^T x)^T.
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
                return d_x, d_kernel, self.programs.column_sums(upstream)

            return tf.nn.bias_add(tf.matmul(x, kernel), bias), gradient

        return op(x, tf.cast(kernel, x.dtype), tf.cast(bias, x.dtype))

    def rotate(self, x: tf.Tensor) -> tf.Tensor:
        """Compute `Kernels.rotate`; its gradient is the inverse rotation."""
        rotate = self.programs.rotate

        @tf.custom_gradient
        def op(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
            return rotate(x, 1.0), lambda upstream: rotate(upstream, -1.0)

        return op(x)

    def _softmax(self, logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Compute `Kernels._softmax`.

        The gradient needs only the result; with bfloat16, that is a third of what a tape would
        keep.
        """
        programs = self.programs

        @tf.custom_gradient
        def op(logits: tf.Tensor) -> tuple[tf.Tensor, Callable]:
            (y,) = programs.for_gradient(programs.softmax(logits, mask))
            return y, lambda upstream: programs.softmax_gradient(y, upstream)

        return op(logits)

    def activation(self, x: tf.Tensor, name: str, gated: bool = False) -> tf.Tensor:
        """Compute `Kernels.activation`."""
        if name != "gelu":
            return super().activation(x, name, gated)
        programs = self.programs
        forward = programs.gated_gelu if gated else programs.gelu
        backward = programs.gated_gelu_gradient if gated else programs.gelu_gradient

        @tf.custom_gradient
        def op(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
            return forward(x), lambda upstream: backward(*programs.for_gradient(x), upstream)

        return op(x)

    def dropout(self, x: tf.Tensor, dropout: Dropout | None) -> tf.Tensor:
        """Compute `Kernels.dropout`; the gradient draws the mask again."""
        if dropout is None:
            return x
        drop = self.programs.dropout

        @tf.custom_gradient
        def op(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
            return drop(x, dropout), lambda upstream: drop(upstream, dropout)

        return op(x)

    def add_norm(
        self, x: Hidden, update: tf.Tensor | None, norm: Norm, dropout: Dropout | None = None
    ) -> Hidden:
        """Compute `Kernels.add_norm`."""
        gamma, beta, eps = norm

        @tf.custom_gradient
        def op(gamma: tf.Tensor, beta: tf.Tensor, *added: tf.Tensor) -> tuple[tf.Tensor, Callable]:
            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, ...]:
                x, *rest = self.programs.for_gradient(*added)
                summand = rest[0] if rest else None
                return self.programs.norm_gradient(x, summand, gamma, upstream, eps, dropout)

            return self.programs.norm(x, update, gamma, beta, eps, dropout), gradient

        return op(gamma, beta, x, *([] if update is None else [update]))

    def linear_cross_entropy(
        self,
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
        programs = self.programs

        @tf.custom_gradient
        def op(x: tf.Tensor, table: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Callable]:
            narrow_x, narrow_table = tf.cast(x, dtype), tf.cast(table, dtype)
            logits = tf.matmul(narrow_x, narrow_table, transpose_b=True)
            sums, *gradients = programs.weighted_cross_entropy(logits, bias, labels, weights, dtype)
            d_logits, d_bias = programs.for_gradient(*gradients)

            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
                scaled = tf.cast(upstream[0] * x, dtype)  # 1 / count alone would be rounded too
                d_x = tf.cast(tf.matmul(d_logits, narrow_table), tf.float32)
                d_table = tf.cast(tf.matmul(d_logits, scaled, transpose_a=True), tf.float32)
                return upstream[0] * d_x, d_table, upstream[0] * d_bias

            return sums, gradient

        return op(x, table, bias)
