"""Index arithmetic shared by texts, records and windows; what damaged files of NumPy raise."""

from tokenize import TokenError

import numpy as np

DAMAGES = (
    *(OSError, ValueError, KeyError, TypeError, EOFError, OverflowError, RuntimeError),
    TokenError,  # from headers, which are Python
)


def ragged_ranges(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the ranges [begin, begin + length) one after the other, as int64.

    `begins` and `lengths` are integers [N].
    """
    ends = np.cumsum(lengths)
    positions = np.arange(ends[-1] if len(ends) else 0)
    return positions + np.repeat(begins - (ends - lengths), lengths)
