"""Windows over contexts that are too long for a model's input."""

import dataclasses

import numpy as np

from albert_tf.text.ragged import ragged_ranges


@dataclasses.dataclass(frozen=True)
class Windows:
    """W windows, those of an example adjacent; all fields are int64 [W], counted in pieces.

    Attributes:
      example: the index of the window's example.
      offset, length: the window's first piece in the context, and its number of pieces.
      owned_from, owned_to: the pieces [from, to) of the context that have the most context here.
    """

    example: np.ndarray
    offset: np.ndarray
    length: np.ndarray
    owned_from: np.ndarray
    owned_to: np.ndarray


def cut_windows(sizes: np.ndarray, max_length: np.ndarray, stride: int) -> Windows:
    """Split contexts into windows of at most `max_length` pieces, at most `stride` apart.

    The last window of a context holds its end. A piece counts in the window with the highest
    min(pieces to the left, pieces to the right) + length / 100, and in the first of equals. The
    pieces that count in a window form a range, because with every further piece the second of two
    neighboring windows gains on the first. `sizes` and `max_length` are int64 [N], one value per
    example.
    """
    step = np.minimum(max_length, stride)
    count = 1 + -(-np.maximum(sizes - max_length, 0) // step)
    example: np.ndarray = np.repeat(np.arange(len(sizes)), count)
    number = ragged_ranges(np.zeros_like(count), count)
    offset = number * step[example]
    length = np.minimum(max_length[example], sizes[example] - offset)

    end = offset + length
    owned_from, owned_to = offset.copy(), end.copy()
    second = np.flatnonzero(number)  # the windows with a predecessor
    first: np.ndarray = second - 1
    shorter = length[first] - length[second]  # positive only for an example's last window
    # Scaled by 100: the second window is better for piece p if 100 (p - offset) + length exceeds
    # 100 (end of the first - 1 - p) + length of the first.
    better = (100 * (end[first] - 1 + offset[second]) + shorter) // 200 + 1
    never = 100 * (end[second] - end[first]) <= shorter
    owned_to[first] = owned_from[second] = np.where(never, end[first], better)
    return Windows(example, offset, length, owned_from, owned_to)
