"""Ragged rows: operations whose memory grows only with the number of values.

TensorFlow's own operations (`value_rowids`, `tf.ragged.boolean_mask`, broadcasting, reducing) take
the memory of a dense tensor as wide as the longest row: one text of a megabyte would make every row
that wide.
"""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # programs that build records start without it
    import tensorflow as tf


def row_of(rows: "tf.RaggedTensor") -> "tf.Tensor":
    """Return the row of each value, int32 [values]."""
    import tensorflow as tf

    size = tf.size(rows.values, tf.int64)
    return tf.searchsorted(rows.row_splits[1:], tf.range(size), side="right")


def mask_rows(rows: "tf.RaggedTensor", mask: "tf.Tensor") -> "tf.RaggedTensor":
    """Return the rows without the values where `mask`, bool [values], is False."""
    import tensorflow as tf

    kept_before = tf.concat([[0], tf.cumsum(tf.cast(mask, tf.int64))], 0)
    return tf.RaggedTensor.from_row_splits(
        tf.boolean_mask(rows.values, mask), tf.gather(kept_before, rows.row_splits), validate=False
    )


def slice_rows(
    rows: "tf.RaggedTensor", begin: "tf.Tensor", length: "tf.Tensor"
) -> "tf.RaggedTensor":
    """Return the values [begin, begin + length) of all rows: int64 [n] each -> [n, (length)]."""
    import tensorflow as tf

    positions = tf.ragged.range(begin, begin + length)
    return positions.with_values(tf.gather(rows.values, positions.values))


def ragged_ranges(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the ranges [begin, begin + length) one after the other, as int64.

    `begins` and `lengths` are integers [N].
    """
    ends = np.cumsum(lengths)
    positions = np.arange(ends[-1] if len(ends) else 0)
    return positions + np.repeat(begins - (ends - lengths), lengths)
