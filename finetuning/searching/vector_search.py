"""Exact search of vectors: by NumPy or, of many, by FAISS.

Both find the highest inner products of a query's vector with all others, which are float16.
"""

from collections.abc import Sequence

import numpy as np

from albert_tf.runtime import extras
from finetuning.searching.rankings import Ranking, best

MOST_OF_NUMPY = 100_000  # vectors
_ADDED_ROWS = 2**13  # in float32 at a time


def search_of(
    parts: Sequence[np.ndarray], most_of_numpy: int = MOST_OF_NUMPY
) -> "NumpySearch | FaissSearch":
    """Return the search of vectors float16 [N, D] of several arrays.

    Raises:
      InputError: there are more than `most_of_numpy`, and FAISS is not installed.
    """
    total = sum(len(part) for part in parts)
    return NumpySearch(parts) if total <= most_of_numpy else FaissSearch(parts)


class NumpySearch:
    """A search in a copy of the vectors in memory, in float32: 4 D bytes for each."""

    def __init__(self, parts: Sequence[np.ndarray]) -> None:
        self._vectors = np.concatenate(parts, dtype=np.float32)

    def ranking(self, query: np.ndarray, count: int) -> Ranking:
        """Return the `count` best rows; of equal scores, the lower row comes first."""
        return best(self._vectors @ query, count)


class FaissSearch:
    """A search in a copy of the vectors in memory: 2 D bytes for each.

    Raises:
      InputError: FAISS is not installed.
    """

    def __init__(self, parts: Sequence[np.ndarray]) -> None:
        total = sum(len(part) for part in parts)
        faiss = extras.load("faiss", "search", f"--index with {total:,} passages")
        width = parts[0].shape[1]
        self._index = faiss.IndexScalarQuantizer(
            width, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        )
        for part in parts:
            for begin in range(0, len(part), _ADDED_ROWS):
                self._index.add(part[begin : begin + _ADDED_ROWS].astype(np.float32))

    def ranking(self, query: np.ndarray, count: int) -> Ranking:
        """Return the `count` best rows; equal ones come in any order."""
        scores, rows = self._index.search(query[np.newaxis], min(count, self._index.ntotal))
        return list(zip(rows[0].tolist(), scores[0].tolist(), strict=True))
