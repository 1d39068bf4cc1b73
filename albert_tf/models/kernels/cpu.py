"""The operations for training on a CPU."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from albert_tf.models.kernels import packing
from albert_tf.models.kernels.fused import FusedKernels
from albert_tf.models.kernels.interface import Hidden, Kernels
from albert_tf.models.kernels.xla import Programs
from albert_tf.runtime import devices


@tf.custom_gradient  # bits have none
def _to_bfloat16(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
    bits, half = tf.bitcast(x, tf.uint32), tf.constant(16, tf.uint32)
    odd = tf.bitwise.bitwise_and(tf.bitwise.right_shift(bits, half), tf.constant(1, tf.uint32))
    rounded = bits + (odd + tf.constant(0x7FFF, tf.uint32))  # half to even
    rounded = tf.bitcast(tf.cast(tf.bitwise.right_shift(rounded, half), tf.uint16), tf.bfloat16)
    return rounded, lambda upstream: tf.cast(upstream, tf.float32)


class CpuPrograms(Programs):
    """Programs between which TensorFlow computes the products.

    They replace what is slow in XLA's own versions for CPUs: rounding to bfloat16 and sums along
    rows.
    """

    def round_to(self, x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        """Compute `Programs.round_to`.

        XLA's own rounding to bfloat16 tests each number for NaN. That prevents vectorization, and
        GELU takes twice the time. Here the bits are rounded as integers. Infinities are kept, and
        so is NaN as sums and products produce it. A NaN with large bits, as tf.math.log produces
        it, would become 0.
        """
        if dtype != tf.bfloat16:
            return tf.cast(x, dtype)
        return _to_bfloat16(x)

    def row_sums(self, x: tf.Tensor) -> tf.Tensor:
        """Compute `Programs.row_sums`; XLA takes longer for a sum along rows than for a product."""
        return tf.matmul(x, tf.ones([tf.shape(x)[1], 1]))

    def column_sums(self, x: tf.Tensor) -> tf.Tensor:
        """Compute `Programs.column_sums`.

        A product takes less time than a sum. In bfloat16 it accumulates in float32 on CPUs with
        native bfloat16 products; with AVX2, it is off by 0.6 %.
        """
        wide = x if devices.has_bfloat16_products() else tf.cast(x, tf.float32)
        return tf.cast(tf.matmul(tf.ones([1, tf.shape(x)[0]], wide.dtype), wide)[0], x.dtype)

    def for_gradient(self, *tensors: tf.Tensor) -> Sequence[tf.Tensor]:
        """Return the tensors: no program holds both passes."""
        return tensors


class CpuKernels(FusedKernels):
    """The fused operations; in batches of at least `packing.SMALLEST` positions, without padding.

    Smaller batches do not repay a program for each number of rows.
    """

    programs = CpuPrograms()

    def skipping_padding(self, input_mask: tf.Tensor) -> Kernels:
        """Return `PackedKernels`, or the same operations if the batch is known to be small."""
        size = input_mask.shape.num_elements()
        is_small = size is not None and size < packing.SMALLEST
        return self if is_small else PackedKernels(packing.Packing.of(input_mask))


class PackedKernels(CpuKernels):
    """The fused operations on the rows of a packing: hidden states are [T, H].

    Attention needs the rows of [B, S]: queries, keys and values `leave`, and contexts `enter`.
    """

    def __init__(self, rows: packing.Packing) -> None:
        self.rows = rows

    def enter(self, x: tf.Tensor) -> Hidden:
        """Compute `Kernels.enter`."""
        return self.rows.pack(super().enter(x))

    def leave(self, x: Hidden, shape: Sequence) -> tf.Tensor:
        """Compute `Kernels.leave`."""
        return super().leave(self.rows.unpack(x), shape)
