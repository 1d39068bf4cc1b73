"""The compact layout of records, defined by `schema.compact_schema`, encoded in batches."""

import dataclasses

import numpy as np

from data.building.sequences import Sequences
from data.records.schema import DOCUMENT, FIRST_LENGTH, PIECES, WORD_STARTS, compact_schema


@dataclasses.dataclass(frozen=True)
class CompactLayout:
    """Encoder of ordered pairs, without masks or special pieces.

    Attributes:
      seq_length: maximum number of pieces of a sequence, special pieces included.
      is_word_start: bool [V], True for pieces that start a word.
    """

    seq_length: int
    is_word_start: np.ndarray

    def encode(self, sequences: Sequences) -> list[bytes]:
        """Return the serialized records."""
        schema = compact_schema(self.seq_length, len(self.is_word_start))
        dtypes = {feature.name: np.dtype(feature.dtype) for feature in schema.features}
        lengths, shape = sequences.lengths, (len(sequences), -(-self.seq_length // 8) * 8)
        bits: np.ndarray = np.zeros(shape, bool)
        bits[np.arange(shape[1]) < lengths[:, None]] = self.is_word_start[sequences.pieces]
        starts: np.ndarray = np.packbits(bits, axis=1)
        pieces: np.ndarray = sequences.pieces.astype(dtypes[PIECES].newbyteorder("<"))
        ends = np.cumsum(lengths)
        return schema.encode_batch(
            {
                PIECES: _slices(pieces, ends - lengths, ends),
                WORD_STARTS: _slices(starts, *_rows(starts, -(-lengths // 8))),
                FIRST_LENGTH: sequences.first.tolist(),
                DOCUMENT: sequences.documents.tolist(),
            }
        )


def _rows(values: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds, in flattened `values`, of the first `sizes[i]` items of each row i."""
    begins = np.arange(len(values)) * values.shape[1]
    return begins, begins + sizes


def _slices(values: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> list[bytes]:
    """Return the bytes of `values[begin:end]` for each pair of bounds."""
    content, size = values.tobytes(), values.itemsize
    bounds = zip((begins * size).tolist(), (ends * size).tolist(), strict=True)
    return [content[begin:end] for begin, end in bounds]
