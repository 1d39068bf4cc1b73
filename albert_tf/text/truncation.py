"""How a pair of segments that is too long is truncated, in NumPy and in the graph.

Pieces are taken one by one from the longer segment until both fit (BERT, `truncate_seq_pair`). Of
equally long ones the second loses the odd piece, as with tensorflow_text's RoundRobinTrimmer; where
that would tell which segment is which, the caller draws it.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf


def truncated_lengths(
    first: np.ndarray, second: np.ndarray, limit: int, odd: int | np.ndarray = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Return how many pieces of each segment are kept.

    Args:
      first, second: the lengths, integers [N].
      limit: pieces that both may have together.
      odd: of equally long ones the first keeps the odd piece where it is 1, the second where 0.
    """
    kept = np.minimum(first, np.maximum((limit + odd) // 2, limit - second))
    return kept, np.minimum(second, limit - kept)


def truncated_lengths_in_graph(
    first: "tf.Tensor", second: "tf.Tensor", limit: Any, odd: Any = 1
) -> tuple["tf.Tensor", "tf.Tensor"]:
    """`truncated_lengths` as TensorFlow operations, of int32 tensors."""
    import tensorflow as tf

    kept = tf.minimum(first, tf.maximum((limit + odd) // 2, limit - second))
    return kept, tf.minimum(second, limit - kept)
