"""Windows over texts that are too long for a model's input, inside a graph.

Shapes: B texts, W windows of all texts.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from albert_tf.text.ragged import row_of

MAX_WINDOWS = 4096  # of one text
ValuesT = TypeVar("ValuesT", np.ndarray, tf.Tensor)


def first_owned(
    offset: ValuesT,
    length: ValuesT,
    end_before: ValuesT,
    length_before: ValuesT,
    where: Callable[[ValuesT, ValuesT, ValuesT], ValuesT],
) -> ValuesT:
    """Return the first piece that a window owns, for windows that have a window before them.

    A piece counts in the window with the highest min(pieces to the left, pieces to the right) +
    length / 100, and in the first of equals. The pieces that count in a window form a range,
    because with every further piece the second of two neighboring windows gains on the first.

    Args:
      offset: the window's first piece, integers [W].
      length: its number of pieces.
      end_before: the end of the window before it.
      length_before: the number of pieces of that window.
      where: `np.where` for arrays, `tf.where` for tensors.
    """
    shorter = length_before - length  # positive only for a text's last window
    # Scaled by 100: this window is better for piece p if 100 (p - offset) + length exceeds
    # 100 (end_before - 1 - p) + length_before.
    better = offset + (100 * (end_before - 1 - offset) + shorter) // 200 + 1
    is_never = 100 * (offset + length - end_before) <= shorter
    return where(is_never, end_before, better)


class GraphWindows(NamedTuple):
    """`tasks.windows.Windows` as int32 [W] each; `before` counts the positions before the text."""

    example: tf.Tensor
    offset: tf.Tensor
    length: tf.Tensor
    owned_from: tf.Tensor
    owned_to: tf.Tensor
    before: tf.Tensor


def equal_parts(name: str, sizes: tf.Tensor, limit: int | tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Split texts, as `tasks.features.split_windows` does, in a graph.

    Args:
      name: the input that holds the texts, for messages.
      sizes: the number of pieces of each text, int64 [B].
      limit: the largest number of pieces of a part, int64 [B] or one for all.

    Returns:
      The text of each part, int32 [W], and its pieces [begin, end), int64 [W] each.

    Raises:
      InvalidArgumentError: a text needs more than `MAX_WINDOWS` parts.
    """
    counts = tf.maximum(-(-sizes // limit), 1)
    message = f"`{name}`: each must fit in {MAX_WINDOWS} windows. Pass a shorter {name}."
    check = tf.debugging.assert_less_equal(counts, tf.constant(MAX_WINDOWS, tf.int64), message)
    with tf.control_dependencies([check]):
        numbers = tf.ragged.range(counts)
    text, number = row_of(numbers), numbers.values
    size, count = tf.gather(sizes, text), tf.gather(numbers.row_lengths(), text)
    return text, number * size // count, (number + 1) * size // count


def pool(values: tf.Tensor, text: tf.Tensor, count: tf.Tensor, long_texts: str) -> tf.Tensor:
    """Return the values of `count` texts, [count, ...], from those of their parts, [W, ...].

    `text`, int32 [W], is the text of each part. The values are the maximum if `long_texts` is
    `max`, otherwise the mean.
    """
    is_max = long_texts == "max"
    segment = tf.math.unsorted_segment_max if is_max else tf.math.unsorted_segment_mean
    return segment(values, text, count)


def cut_windows(
    name: str,
    sizes: tf.Tensor,
    before: tf.Tensor,
    seq_length: int,
    stride: int,
    max_windows: int,
) -> GraphWindows:
    """Split texts into windows, as `tasks.windows.cut_windows` does, in a graph.

    Args:
      name: the input that holds the texts, for messages.
      sizes: the number of pieces of each text, int32 [B].
      before: the positions before the text in each of its windows, int32 [B]. One follows it.
      seq_length: the positions of a window.
      stride: the pieces between the starts of two windows.
      max_windows: the largest number of windows of a text.

    Raises:
      InvalidArgumentError: a text needs more than `max_windows` windows.
    """
    max_length = seq_length - 1 - before
    step = tf.minimum(max_length, stride)
    count = 1 - (-tf.maximum(sizes - max_length, 0)) // step
    message = (
        f"`{name}`: each must fit in {max_windows} windows of {seq_length} pieces that start "
        f"{stride} pieces apart. Pass a shorter {name}."
    )
    check = tf.debugging.assert_less_equal(count, max_windows, message)
    with tf.control_dependencies([check]):
        rows = tf.ragged.range(count)
    example, number = row_of(rows), rows.values
    offset = number * tf.gather(step, example)
    length = tf.minimum(tf.gather(max_length, example), tf.gather(sizes, example) - offset)
    end = offset + length
    border = first_owned(offset, length, tf.roll(end, 1, 0), tf.roll(length, 1, 0), tf.where)
    is_second = number > 0
    owned_from = tf.where(is_second, border, offset)
    owned_to = tf.where(tf.roll(is_second, -1, 0), tf.roll(border, -1, 0), end)
    before = tf.gather(before, example)
    return GraphWindows(example, offset, length, owned_from, owned_to, before)
