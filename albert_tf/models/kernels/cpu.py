"""The operations for training on a CPU, and in one XLA program for any device (PJRT)."""

from collections.abc import Sequence

import tensorflow as tf

from albert_tf.models.kernels import fused, packing
from albert_tf.models.kernels.interface import (
    Hidden,
    JoinedProjections,
    Kernels,
    Norm,
    Projections,
    join_heads,
    split_heads,
)


class FusedKernels(Kernels):
    """One pass forward and one backward for each operation, as `fused` computes them."""

    def affine(self, x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """Compute `Kernels.affine`."""
        return fused.affine(x, tf.cast(kernel, x.dtype), tf.cast(bias, x.dtype))

    def rotate(self, x: tf.Tensor) -> tf.Tensor:
        """Compute `Kernels.rotate`."""
        return fused.rotate(x)

    def softmax(self, logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Compute `Kernels.softmax`."""
        return fused.softmax(logits, mask)

    def activation(self, x: tf.Tensor, name: str) -> tf.Tensor:
        """Compute `Kernels.activation`."""
        return fused.gelu(x) if name == "gelu" else super().activation(x, name)

    def gated_activation(self, x: tf.Tensor, name: str) -> tf.Tensor:
        """Compute `Kernels.gated_activation`."""
        return fused.gated_gelu(x) if name == "gelu" else super().gated_activation(x, name)

    def dropout(self, x: tf.Tensor, rate: float, key: tf.Tensor | None) -> tf.Tensor:
        """Compute `Kernels.dropout`."""
        return x if key is None or rate == 0.0 else fused.dropout(x, rate, key)

    def add_norm(
        self,
        x: Hidden,
        update: tf.Tensor | None,
        norm: Norm,
        rate: float = 0.0,
        key: tf.Tensor | None = None,
    ) -> Hidden:
        """Compute `Kernels.add_norm`."""
        return fused.add_dropout_norm(x, update, *norm, rate, key if rate else None)

    def linear_cross_entropy(
        self,
        x: tf.Tensor,
        table: tf.Tensor,
        bias: tf.Tensor,
        labels: tf.Tensor,
        weights: tf.Tensor,
        dtype: tf.DType,
    ) -> tf.Tensor:
        """Compute `Kernels.linear_cross_entropy`."""
        return fused.linear_cross_entropy(x, table, bias, labels, weights, dtype)


class CpuKernels(FusedKernels):
    """The fused operations; in batches of at least `packing.SMALLEST` positions, without padding.

    Smaller batches do not repay a program for each number of rows.
    """

    def skipping_padding(self, input_mask: tf.Tensor) -> Kernels:
        """Return `PackedKernels`, or the same operations if the batch is known to be small."""
        size = input_mask.shape.num_elements()
        is_small = size is not None and size < packing.SMALLEST
        return self if is_small else PackedKernels(packing.Packing.of(input_mask))


class PackedKernels(FusedKernels):
    """The fused operations on the rows of a packing: hidden states are [T, H].

    Attention needs the rows of [B, S], so it unpacks queries, keys and values.
    """

    def __init__(self, rows: packing.Packing) -> None:
        self.rows = rows

    def enter(self, x: tf.Tensor) -> Hidden:
        """Compute `Kernels.enter`."""
        return self.rows.pack(super().enter(x))

    def leave(self, x: Hidden, shape: Sequence) -> tf.Tensor:
        """Compute `Kernels.leave`."""
        return super().leave(self.rows.unpack(x), shape)

    def into_heads(
        self,
        x: Hidden,
        weights: Projections | JoinedProjections,
        mask: tf.Tensor,
        num_heads: int,
        num_queries: int | tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Compute `Kernels.into_heads`."""
        joined = weights.joined(num_heads) if isinstance(weights, Projections) else weights
        qkv = self.rows.unpack(self.affine(x, joined.kernel, joined.bias))
        return split_heads(qkv, mask, num_heads, num_queries)

    def out_of_heads(self, context: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """Compute `Kernels.out_of_heads`."""
        return self.affine(self.rows.pack(join_heads(context)), kernel, bias)
