"""Packing of the real positions of a batch into rows without padding."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from albert_tf.models.kernels.plain import shape_of

SMALLEST = 1025  # positions; smaller batches do not repay a program for each number of rows


@dataclasses.dataclass(frozen=True)
class Packing:
    """A mapping between [B * S, C] with padding and [T, C] without, for losses that ignore padding.

    T is the number of real positions, rounded up to a multiple of a 64th of B * S, so that XLA
    compiles programs for few values of T; if B * S is below `SMALLEST`, it is B * S. The spare rows
    are copies of a padded position, and padded positions are copies of a spare row. If no loss
    depends on a padded position, spare rows and padded positions have no gradient, and the gradient
    of `pack` is `unpack` and vice versa.

    Attributes:
      rows: int32 [T], the position of each row.
      positions: int32 [B * S], the row of each position.
      shape: [B, S].
    """

    rows: tf.Tensor
    positions: tf.Tensor
    shape: list

    @classmethod
    def of(cls, input_mask: tf.Tensor) -> "Packing":
        """Return the packing of a mask [B, S], 1 where a position is real."""
        batch, length = shape_of(input_mask)
        real = tf.reshape(input_mask, [-1]) > 0
        size, count = batch * length, tf.reduce_sum(tf.cast(real, tf.int32))
        step = tf.maximum(1, size // 64)
        padded = tf.where(size < SMALLEST, size, tf.minimum((count // step + 1) * step, size))
        # The real positions in order, then the padded ones.
        order = tf.argsort(tf.cast(~real, tf.int32), stable=True)
        first_padded = tf.pad(order, [[0, 1]])[count]  # a replica's batch may be empty
        is_left_over = tf.range(padded) >= count
        rows = tf.where(is_left_over, first_padded, order[:padded])
        positions = tf.where(real, tf.cumsum(tf.cast(real, tf.int32)) - 1, padded - 1)
        return cls(rows, positions, [batch, length])

    def pack(self, x: tf.Tensor) -> tf.Tensor:
        """Convert [B * S, C] to [T, C]."""
        return _gather(x, self.rows, self.positions)

    def unpack(self, x: tf.Tensor) -> tf.Tensor:
        """Convert [T, C] to [B * S, C]."""
        return _gather(x, self.positions, self.rows)


def _gather(x: tf.Tensor, there: tf.Tensor, back: tf.Tensor) -> tf.Tensor:
    @tf.custom_gradient
    def op(x: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        return tf.gather(x, there), lambda upstream: tf.gather(upstream, back)

    return op(x)
