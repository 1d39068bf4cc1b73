"""Pairs of segments in columns, as passed between the stages of a build."""

import dataclasses
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, Self

import numpy as np

from albert_tf.text.ragged import ragged_ranges

_COLUMNS = {"keys": "<u8", "documents": "<i8", "labels": "u1", "first": "<i4", "second": "<i4"}

_RANGES = 2**9  # ranges taken at once; an index takes four times the memory of a piece


@dataclasses.dataclass(frozen=True)
class Sequences:
    """N pairs of segments.

    Attributes:
      keys: uint64 [N], the random key of each pair; keys order the records and draw their masks.
      documents: int64 [N], numbers of the documents in the corpus.
      labels: uint8 [N], 0 = in order, 1 = swapped or from another document.
      first: int32 [N], number of pieces of the first segments.
      second: int32 [N], number of pieces of the second segments.
      pieces: uint16 or int32 [sum of first and second], the pieces, segment after segment.
    """

    keys: np.ndarray
    documents: np.ndarray
    labels: np.ndarray
    first: np.ndarray
    second: np.ndarray
    pieces: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def lengths(self) -> np.ndarray:
        """Number of pieces of each pair, int64 [N]."""
        return self.first.astype(np.int64) + self.second

    def take(self, rows: np.ndarray) -> Self:
        """Return the pairs `rows`, int64 [M], in that order."""
        lengths = self.lengths
        begins = np.cumsum(lengths) - lengths
        columns = {name: getattr(self, name)[rows] for name in _COLUMNS}
        pieces = take_ranges(self.pieces, begins[rows], lengths[rows])
        return dataclasses.replace(self, **columns, pieces=pieces)

    def split(self, sizes: Sequence[int]) -> Iterator[Self]:
        """Yield runs of pairs of the given sizes, without a copy; the last run may be shorter."""
        piece_ends: np.ndarray = np.append(0, np.cumsum(self.lengths))
        begin = 0
        for size in sizes:
            end = min(begin + size, len(self))
            columns = {name: getattr(self, name)[begin:end] for name in _COLUMNS}
            pieces = self.pieces[piece_ends[begin] : piece_ends[end]]
            yield dataclasses.replace(self, **columns, pieces=pieces)
            begin = end

    def write(self, file: BinaryIO) -> None:
        """Append the pairs to a file."""
        sizes = np.array([len(self), len(self.pieces), self.pieces.dtype.itemsize], "<i8")
        arrays = [getattr(self, name).astype(dtype) for name, dtype in _COLUMNS.items()]
        pieces = self.pieces.astype(self.pieces.dtype.newbyteorder("<"))
        file.write(b"".join(array.tobytes() for array in (sizes, *arrays, pieces)))

    @classmethod
    def read(cls, content: bytes) -> Self:
        """Return all pairs in the content of a file."""
        return cls.joined(cls.blocks(io.BytesIO(content)))

    @classmethod
    def blocks(cls, file: BinaryIO) -> Iterator[Self]:
        """Yield the pairs of each `write` to a file, in order."""
        while head := file.read(24):
            count, num_pieces, size = np.frombuffer(head, "<i8").tolist()
            types = [(dtype, count) for dtype in _COLUMNS.values()]
            types.append(("<u2" if size == 2 else "<i4", num_pieces))
            contents = ((dtype, file.read(np.dtype(dtype).itemsize * n)) for dtype, n in types)
            yield cls(*(np.frombuffer(content, dtype) for dtype, content in contents))

    @classmethod
    def joined(cls, parts: Iterable[Self]) -> Self:
        """Return the pairs of all parts, in order."""
        columns: list[list[np.ndarray]] = [
            [np.zeros(0, dtype)] for dtype in (*_COLUMNS.values(), "<u2")
        ]
        for part in parts:
            for field, arrays in zip(dataclasses.fields(cls), columns, strict=True):
                arrays.append(getattr(part, field.name))
        return cls(*map(np.concatenate, columns))


def take_ranges(values: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the concatenated values of the ranges, which are those of `ragged_ranges`."""
    parts = [values[:0]]
    for start in range(0, len(begins), _RANGES):
        positions = ragged_ranges(begins[start : start + _RANGES], lengths[start : start + _RANGES])
        parts.append(values.take(positions))  # faster than values[positions]
    return np.concatenate(parts)
