"""Windows over contexts that are too long for a model's input."""

import dataclasses

import numpy as np

from albert_tf.graph.windows import first_owned
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

    The last window of a context holds its end; `first_owned` says which pieces a window owns.
    `sizes` and `max_length` are int64 [N], one value per example.
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
    owned_to[first] = owned_from[second] = first_owned(
        offset[second], length[second], end[first], length[first], np.where
    )
    return Windows(example, offset, length, owned_from, owned_to)
