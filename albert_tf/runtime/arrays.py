"""Index arithmetic that texts, records and windows share."""

import numpy as np


def ragged_ranges(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return begin, begin + 1, ... of so many, for one pair of numbers after the other: int64.

    Args:
      begins, lengths: integers [N].
    """
    ends = np.cumsum(lengths)
    positions = np.arange(ends[-1] if len(ends) else 0)
    return positions + np.repeat(begins - (ends - lengths), lengths)
