"""Records as Google's and Model Garden's tools write them: masked, padded, their feature names.

A record is a `tf.train.Example` of integers with fixed lengths: the sequence with its masks, chosen
when it was written. Whole batches are written at once in NumPy: every varint has the width of the
largest, which any parser of the format accepts, so that all records are of one size.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from albert_tf.runtime.arrays import ragged_ranges
from data.building.sequences import Sequences
from data.building.static_masking import StaticMasking, choose, replace
from data.records.schema import FOREIGN_NAMES
from data.records.writer import encode_examples

_LAID_OUT = 2**18  # pieces at a time, padding included: what a processor's cache holds


@dataclasses.dataclass(frozen=True)
class ReferenceLayout:
    """Writes pairs as masked records of `seq_length`.

    names: `google` or `model_garden`. is_word_start: bool [V].
    """

    names: str
    seq_length: int
    cls_id: int
    sep_id: int
    masking: StaticMasking
    is_word_start: np.ndarray

    def encode(self, sequences: Sequences) -> Iterator[bytes]:
        """The serialized records."""
        chosen = choose(sequences, self.is_word_start, self.masking)
        rows, begin = max(1, _LAID_OUT // self.seq_length), 0
        for part in sequences.split([rows] * -(-len(sequences) // rows)):
            end = begin + len(part.pieces)
            chosen_slice: slice = slice(*chosen.searchsorted(np.array([begin, end])))
            features = self.features(part, chosen[chosen_slice] - begin)
            yield from encode_examples(features, self._largest())
            begin = end

    def features(self, sequences: Sequences, chosen: np.ndarray) -> dict[str, np.ndarray]:
        """The features of a batch: int [N, S], [N, P] or [N, 1], the weights float32 [N, P].

        chosen: int64 [M], the places in `pieces` of those to predict.
        """
        names, config = FOREIGN_NAMES[self.names], self.masking
        column: np.ndarray = np.arange(self.seq_length, dtype=np.int32)
        first: np.ndarray = sequences.first[:, None] + 1
        end: np.ndarray = sequences.lengths[:, None].astype(np.int32) + 3
        real = column < end  # [N, S]
        special = (column == 0) | (column == first) | (column == end - 1)
        ordinary = real & ~special  # in the order of `pieces`
        ids = np.where(real, np.int32(self.sep_id), np.int32(0))
        ids[:, 0] = self.cls_id

        ends = np.cumsum(sequences.lengths)
        counts = np.diff(chosen.searchsorted(ends), prepend=0)
        row: np.ndarray = np.repeat(np.arange(len(counts)), counts)
        slot = ragged_ranges(np.zeros_like(counts), counts)
        in_row = chosen - (ends - sequences.lengths)[row]
        position = in_row + 1 + (in_row >= sequences.first[row])
        ids[ordinary] = sequences.pieces
        boundary = special | (self.is_word_start.take(ids) & real)
        ids[row, position] = replace(sequences, chosen, row, config)

        shape = (len(sequences), config.max_predictions)
        positions: np.ndarray = np.zeros(shape, np.int32)
        targets: np.ndarray = np.zeros(shape, np.int32)
        weights: np.ndarray = np.zeros(shape, np.float32)
        positions[row, slot], weights[row, slot] = position, 1.0
        targets[row, slot] = sequences.pieces[chosen]
        values = {
            names[0]: ids,
            "input_mask": real,
            names[1]: real & (column > first),
            "masked_lm_positions": positions,
            "masked_lm_ids": targets,
            "masked_lm_weights": weights,
            "next_sentence_labels": sequences.labels[:, None],
        }
        return values | ({names[2]: boundary} if names[2] else {})

    def _largest(self) -> dict[str, int]:
        """The largest value of each feature that is not 0 or 1."""
        return {
            FOREIGN_NAMES[self.names][0]: self.masking.vocab_size - 1,
            "masked_lm_ids": self.masking.vocab_size - 1,
            "masked_lm_positions": self.seq_length - 1,
        }
