"""The reference layout: masked and padded records as from Google's and Model Garden's tools.

A record is a `tf.train.Example` of fixed-length features: the sequence and its masks, which are
chosen at build time. NumPy encodes whole batches at once. Every varint is as wide as the largest
one, which any parser of the format accepts, so that all records have the same size.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from albert_tf.text.ragged import ragged_ranges
from data.building.sequences import Sequences
from data.building.static_masking import StaticMasking, choose, replace
from data.records.schema import FOREIGN_NAMES
from data.records.writer import encode_examples

_LAID_OUT = 2**18  # pieces encoded at once, padding included; fits a processor's cache


@dataclasses.dataclass(frozen=True)
class ReferenceLayout:
    """Encoder of pairs as masked records of `seq_length` pieces.

    Attributes:
      names: feature names, `google` or `model_garden`.
      seq_length: length of a sequence S, special pieces and padding included.
      cls_id: id of [CLS].
      sep_id: id of [SEP].
      masking: the masking options.
      is_word_start: bool [V], True for pieces that start a word.
    """

    names: str
    seq_length: int
    cls_id: int
    sep_id: int
    masking: StaticMasking
    is_word_start: np.ndarray

    def encode(self, sequences: Sequences) -> Iterator[bytes]:
        """Yield the serialized records."""
        chosen = choose(sequences, self.is_word_start, self.masking)
        rows, begin = max(1, _LAID_OUT // self.seq_length), 0
        for part in sequences.split([rows] * -(-len(sequences) // rows)):
            end = begin + len(part.pieces)
            chosen_slice: slice = slice(*chosen.searchsorted(np.array([begin, end])))
            features = self.features(part, chosen[chosen_slice] - begin)
            yield from encode_examples(features, self._largest())
            begin = end

    def features(self, sequences: Sequences, chosen: np.ndarray) -> dict[str, np.ndarray]:
        """Return the features of a batch: int or bool [N, S], [N, P] or [N, 1]; float32 weights.

        `chosen`, int64 [M], contains the indices in `pieces` of the pieces to predict.
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
        """Return the largest value of each feature, except for features of only 0 and 1."""
        return {
            FOREIGN_NAMES[self.names][0]: self.masking.vocab_size - 1,
            "masked_lm_ids": self.masking.vocab_size - 1,
            "masked_lm_positions": self.seq_length - 1,
        }
