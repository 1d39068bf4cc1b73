"""Plain functions that the plain set and those for devices share."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

ROTARY_BASE = 10_000.0


def shape_of(x: tf.Tensor) -> list:
    """Return the sizes of `x`: numbers where they are static, scalar tensors elsewhere."""
    dynamic = tf.shape(x)
    return [dynamic[i] if size is None else size for i, size in enumerate(x.shape)]


def positions_of(mask: tf.Tensor) -> list:
    """Return [B, S] of a mask [B, 1, 1, S]."""
    shape = shape_of(mask)
    return [shape[0], shape[3]]


class Dropout(NamedTuple):
    """A probability in (0, 1) and the key of what is dropped.

    The key is int32 [2], or [3] for one of several equal parts along the first axis; the third word
    is then the number of the part.
    """

    rate: float
    key: tf.Tensor

    @classmethod
    def of(cls, rate: float, key: tf.Tensor | None) -> "Dropout | None":
        """Return the dropout, or None if nothing is dropped."""
        return None if key is None or rate == 0.0 else cls(rate, key)


def dropped(x: tf.Tensor, dropout: Dropout) -> tf.Tensor:
    """Set each element to zero with probability `rate`, and scale the rest by 1 / (1 - rate).

    A hash of (key, position) selects the elements, so that they are the same on every device and in
    a recomputation. x is floating, of any shape with fewer than 2^31 rows.
    """
    rate, key = dropout
    width = x.shape[-1] or tf.shape(x)[-1]
    rows, columns = tf.range(tf.reduce_prod(tf.shape(x)[:-1])), tf.range(width)
    if key.shape[0] == 3:  # a part of the batch: use its rows of the whole batch's mask
        rows += key[2] * tf.size(rows)
    # Rows and columns are hashed alone, so that each element takes only one hash more.
    rows = _mix(_mix(tf.bitcast(rows + key[0], tf.uint32)) ^ tf.bitcast(key[1], tf.uint32))
    rows = tf.reshape(rows, tf.concat([tf.shape(x)[:-1], [1]], 0))
    bits = _mix(rows ^ _mix(tf.bitcast(columns, tf.uint32)))
    scaled = x * tf.cast(1 / (1 - rate), x.dtype)
    return tf.where(bits >= tf.constant(round(rate * 2**32), tf.uint32), scaled, tf.zeros_like(x))


def _mix(bits: tf.Tensor) -> tf.Tensor:
    """Return a bijection of 32 bits in which each input bit flips about half of the output bits."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        bits ^= tf.bitwise.right_shift(bits, tf.constant(shift, tf.uint32))
        bits *= tf.constant(factor, tf.uint32)
    return bits ^ tf.bitwise.right_shift(bits, tf.constant(16, tf.uint32))


def row_mean(x: tf.Tensor) -> tf.Tensor:
    """Return the means of [M, N] along rows: [M, 1]."""
    return tf.reduce_mean(x, -1, keepdims=True)


def normalized_sum(
    x: tf.Tensor,
    update: tf.Tensor | None,
    eps: float,
    dropout: Dropout | None,
    mean: Callable = row_mean,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the normalized x + dropout(update) and 1 / standard deviation.

    They are float32 [M, H] and [M, 1].
    """
    total = tf.cast(x, tf.float32)
    if update is not None:
        update = tf.cast(update, tf.float32)
        total += update if dropout is None else dropped(update, dropout)
    centred = total - mean(total)
    inverse = tf.math.rsqrt(mean(tf.square(centred)) + eps)
    return centred * inverse, inverse


def rotation(x: tf.Tensor, sign: float, to: Callable = tf.cast, axis: int = 2) -> tf.Tensor:
    """Rotate the pairs (i, i + D / 2) of x [B, N, S, D] by the angles of each position.

    Args:
      x: the tensor; the rotation is computed in float32.
      sign: 1.0, or -1.0 for the inverse.
      to: the function that casts the result to x's dtype.
      axis: the axis of the positions, 1 or 2.
    """
    half = x.shape[-1] // 2
    frequency = ROTARY_BASE ** (-np.arange(half, dtype=np.float64) / half)
    position = tf.cast(tf.range(tf.shape(x)[axis]), tf.float32)
    angle = position[:, None] * tf.constant(frequency, tf.float32)  # [S, D / 2]
    if axis == 1:
        angle = angle[:, None]  # [S, 1, D / 2]
    cosine, sine = tf.cos(angle), sign * tf.sin(angle)
    first, second = tf.split(tf.cast(x, tf.float32), 2, -1)
    rotated = [first * cosine - second * sine, second * cosine + first * sine]
    return to(tf.concat(rotated, -1), x.dtype)


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return -log softmax(logits)[label], and whether the label has the (first) largest logit.

    Args:
      logits: float32 [N, V].
      labels: int32 [N].

    Returns:
      float32 [N], NaN where the label is not in [0, V), and bool [N].
    """
    size = tf.shape(logits)[-1]
    is_valid = (labels >= 0) & (labels < size)
    # TensorFlow's own cross-entropies round differently once a process is made deterministic.
    is_label = tf.one_hot(labels, size, True, False, dtype=tf.bool)
    losses = -tf.reduce_sum(tf.where(is_label, tf.nn.log_softmax(logits), 0.0), -1)
    is_right = tf.argmax(logits, -1, tf.int32) == labels
    return tf.where(is_valid, losses, float("nan")), is_right
