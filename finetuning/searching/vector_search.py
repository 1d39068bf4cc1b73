"""Exact search of vectors: by NumPy in blocks or, of many, by FAISS.

Both find the highest inner products of a query's vector with all others, which are float16.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from albert_tf.runtime import extras
from finetuning.searching.rankings import Ranking, best

MOST_OF_NUMPY = 100_000  # vectors
_BLOCK_ROWS = 2**9  # in float32 at a time: at width 384, they fit into a core's cache
_ADDED_ROWS = 2**13
# The fraction of a float16 has 13 bits less than that of a float32, and its exponent is 112 less.
_SHIFT, _SCALE = 13, np.float32(2.0**112)
_SIGN_AND_REST = np.int32(-0x70002000)  # bits 31 and 13 to 27


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
        buffer: np.ndarray = np.empty((self._block_rows, len(query)), np.int32)
        scaled = query.astype(np.float32) * _SCALE
        offset = 0
        for part in self._parts:
            for begin in range(0, len(part), self._block_rows):
                block = part[begin : begin + self._block_rows]
                rows = scores[offset : offset + len(block)]
                np.matmul(_widened(block, buffer[: len(block)]), scaled, out=rows)
                offset += len(block)
        return best(scores, count)


def _widened(values: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Return finite float16 values as float32 in the memory of `out`, divided by `_SCALE`.

    That is a shift of their bits, a fifth of the time of NumPy's own conversion, and exact.
    """
    out[...] = values.view(np.int16)
    out <<= _SHIFT
    out &= _SIGN_AND_REST
    return out.view(np.float32)


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
