"""Writes pairs in the compact layout, which `schema.compact_schema` describes, by batches."""

import dataclasses
import functools

import numpy as np

from data.building.sequences import Sequences
from data.records.schema import DOCUMENT, FIRST_LENGTH, PIECES, WORD_STARTS, ids_dtype
from data.records.writer import BYTES, INTEGERS, entry_head, varint


@dataclasses.dataclass(frozen=True)
class CompactLayout:
    """Ordered pairs without masks or special pieces, the same bytes as `RecordSchema.encode`'s.

    is_word_start: bool [V].
    """

    seq_length: int
    is_word_start: np.ndarray

    def encode(self, sequences: Sequences) -> list[bytes]:
        """The serialized records."""
        dtype = np.dtype(ids_dtype(len(self.is_word_start))).newbyteorder("<")
        lengths = sequences.lengths
        bits: np.ndarray = np.zeros((len(sequences), -(-self.seq_length // 8) * 8), bool)
        bits[np.arange(bits.shape[1]) < lengths[:, None]] = self.is_word_start[sequences.pieces]
        starts, width = np.packbits(bits, axis=1).tobytes(), bits.shape[1] // 8
        pieces, size = sequences.pieces.astype(dtype).tobytes(), dtype.itemsize
        records, at = [], 0
        columns = (sequences.documents, sequences.first, lengths)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for row, (document, first, length) in enumerate(rows):
            word_bytes = -(-length // 8)
            parts = (
                _scalar(DOCUMENT, document),
                _scalar(FIRST_LENGTH, first),
                _bytes_head(PIECES, length * size),
                pieces[at : at + length * size],
                _bytes_head(WORD_STARTS, word_bytes),
                starts[row * width : row * width + word_bytes],
            )
            body = b"".join(parts)
            records.append(b"\n" + varint(len(body)) + body)
            at += length * size
        return records


@functools.lru_cache(2**14)
def _scalar(name: str, value: int) -> bytes:
    payload = varint(value)
    return entry_head(name, INTEGERS, len(payload)) + payload


@functools.lru_cache(2**14)
def _bytes_head(name: str, size: int) -> bytes:
    return entry_head(name, BYTES, size)
