"""Windows over contexts that are longer than a model reads."""

import dataclasses

import numpy as np

from albert_tf.runtime.arrays import ragged_ranges


@dataclasses.dataclass(frozen=True)
class Windows:
    """W windows, those of an example beside each other; each int64 [W], counted in pieces.

    example: whose window it is.
    offset, length: where in the context it begins, and how much of it it holds.
    owned_from, owned_to: the pieces [from, to) of the context that have the most context here.
    """

    example: np.ndarray
    offset: np.ndarray
    length: np.ndarray
    owned_from: np.ndarray
    owned_to: np.ndarray


def cut_windows(sizes: np.ndarray, max_length: np.ndarray, stride: int) -> Windows:
    """Windows of at most `max_length` pieces, `stride` apart or less, up to the one with the end.

    A piece counts in the window with the highest min(pieces to the left, pieces to the right) +
    length / 100, in the first of equals. Such pieces are a range: of two neighbours, the second
    gains on the first with every piece.

    Args:
      sizes, max_length: int64 [N], of each example.
    """
    step = np.minimum(max_length, stride)
    count = 1 + -(-np.maximum(sizes - max_length, 0) // step)
    example: np.ndarray = np.repeat(np.arange(len(sizes)), count)
    number = ragged_ranges(np.zeros_like(count), count)
    offset = number * step[example]
    length = np.minimum(max_length[example], sizes[example] - offset)

    end = offset + length
    owned_from, owned_to = offset.copy(), end.copy()
    second = np.flatnonzero(number)  # has a window before it
    first: np.ndarray = second - 1
    shorter = length[first] - length[second]  # by more than nothing for the last window alone
    # In hundredths: the second is better where 100 (p - offset) + length exceeds
    # 100 (end of the first - 1 - p) + length of the first.
    better = (100 * (end[first] - 1 + offset[second]) + shorter) // 200 + 1
    never = 100 * (end[second] - end[first]) <= shorter
    owned_to[first] = owned_from[second] = np.where(never, end[first], better)
    return Windows(example, offset, length, owned_from, owned_to)
