"""Exact search of vectors: by NumPy in blocks or, of many, by FAISS.

Both find the highest inner products of a query's vector with all others, which are float16. At
200,000 vectors of width 384, FAISS takes an eighth of NumPy's time on a CPU, because it converts
float16 in registers.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from albert_tf.runtime import extras
from finetuning.searching.rankings import Ranking, best

MOST_OF_NUMPY = 100_000  # vectors
_BLOCK_ROWS = 2**9  # in float32 at a time: at width 384, they fit into a core's cache
_ADDED_ROWS = 2**13


class VectorSearch(Protocol):
    """A search of vectors whose rows follow each other."""

    def ranking(self, query: np.ndarray, count: int) -> Ranking:
        """Return the `count` rows with the highest inner product with a vector float32 [D]."""


def search_of(parts: Sequence[np.ndarray], most_of_numpy: int = MOST_OF_NUMPY) -> VectorSearch:
    """Return the search of vectors float16 [N, D] of several arrays.

    Raises:
      InputError: there are more than `most_of_numpy`, and FAISS is not installed.
    """
    total = sum(len(part) for part in parts)
    return NumpySearch(parts) if total <= most_of_numpy else FaissSearch(parts)


class NumpySearch:
    """A search that reads the vectors where they lie, in blocks, so that memory is bounded."""

    def __init__(self, parts: Sequence[np.ndarray], block_rows: int = _BLOCK_ROWS) -> None:
        self._parts, self._block_rows = parts, block_rows

    def ranking(self, query: np.ndarray, count: int) -> Ranking:
        """Return the `count` best rows; of equal ones, the lower row comes first."""
        scores: np.ndarray = np.empty(sum(map(len, self._parts)), np.float32)
        offset = 0
        for part in self._parts:
            for begin in range(0, len(part), self._block_rows):
                block: np.ndarray = part[begin : begin + self._block_rows].astype(np.float32)
                scores[offset : offset + len(block)] = block @ query
                offset += len(block)
        return best(scores, count)


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
