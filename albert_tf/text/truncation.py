"""Truncation of segment pairs that are too long, in NumPy and in the graph.

Pieces are removed one by one from the longer segment until both fit (BERT, `truncate_seq_pair`). If
both are equally long, the second loses the odd piece, as in tensorflow_text's RoundRobinTrimmer.
Where that would reveal which segment is which, the caller draws `odd` at random.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf


def truncated_lengths(
    first: np.ndarray, second: np.ndarray, limit: int, odd: int | np.ndarray = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of pieces of each segment that are kept.

    Args:
      first: the lengths of the first segments, integers [N].
      second: the lengths of the second segments, integers [N].
      limit: the maximum number of pieces of both together.
      odd: the segment that keeps the odd piece if both are equally long: 1 = first, 0 = second.
    """
    first_length = np.minimum(first, np.maximum((limit + odd) // 2, limit - second))
    return first_length, np.minimum(second, limit - first_length)


def truncated_lengths_in_graph(
    first: "tf.Tensor", second: "tf.Tensor", limit: Any, odd: Any = 1
) -> tuple["tf.Tensor", "tf.Tensor"]:
    """Compute `truncated_lengths` of int32 tensors as TensorFlow operations."""
    import tensorflow as tf

    first_length = tf.minimum(first, tf.maximum((limit + odd) // 2, limit - second))
    return first_length, tf.minimum(second, limit - first_length)
