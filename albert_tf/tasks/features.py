"""Token sequences for task models, stored end to end and padded per batch."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np
import tensorflow as tf

from albert_tf.text.tokenizer import SpecialIds
from albert_tf.text.truncation import truncated_lengths

BUCKET = 32  # lengths are rounded up to a multiple of this: few shapes, little padding


@dataclasses.dataclass(frozen=True)
class Sequences:
    """N sequences [CLS] A [SEP] or [CLS] A [SEP] B [SEP] of any lengths.

    Attributes:
      ids: int32 [total], the sequences end to end.
      lengths: int32 [N], the lengths of the sequences.
      first_lengths: int32 [N], the lengths of [CLS] A [SEP].
      pad: the id for padding.
      cut: bool [N], True for truncated sequences.
    """

    ids: np.ndarray
    lengths: np.ndarray
    first_lengths: np.ndarray
    pad: int
    cut: np.ndarray

    def __len__(self) -> int:
        return len(self.lengths)

    @functools.cached_property
    def _tensors(self) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        with tf.init_scope():  # outside the current graph, because later graphs use the tensors too
            ids = tf.RaggedTensor.from_row_lengths(self.ids, self.lengths.astype(np.int64))
            return ids, tf.constant(self.lengths), tf.constant(self.first_lengths)

    def inputs(self, rows: tf.Tensor, length: int | tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the encoder's inputs for some sequences: int32 [B, length], in graphs too.

        Args:
          rows: integers [B], the indices of the sequences.
          length: at least the length of the longest of them.
        """
        every, *lengths = self._tensors
        total, first = (tf.gather(each, rows)[:, None] for each in lengths)
        ids = tf.gather(every, rows).to_tensor(self.pad)  # [B, longest]
        ids = tf.pad(ids, [[0, 0], [0, length - tf.shape(ids)[1]]], constant_values=self.pad)
        ids = tf.ensure_shape(ids, [rows.shape[0], length if isinstance(length, int) else None])
        positions = tf.range(length)[None, :]
        return {
            "input_word_ids": ids,
            "input_mask": tf.cast(positions < total, tf.int32),
            "input_type_ids": tf.cast((positions >= first) & (positions < total), tf.int32),
        }

    def padded_length(self, rows: tf.Tensor, longest: int) -> tf.Tensor:
        """Return the longest length in `rows`, rounded up to the bucket, at most `longest`."""
        needed = tf.reduce_max(tf.gather(self._tensors[1], rows))
        return tf.minimum(-(-needed // BUCKET) * BUCKET, longest)


@dataclasses.dataclass(frozen=True)
class Features:
    """The inputs and targets of a task model: N units of `per_unit` sequences each.

    Attributes:
      sequences: N x per_unit sequences; those of a unit are adjacent.
      seq_length: the maximum length of a sequence.
      targets: name -> [N, ...]; empty if they are unknown.
      per_unit: the number of sequences in a unit.
      hints: name -> [N, ...], inputs for training in addition to the sequences.
    """

    sequences: Sequences
    seq_length: int
    targets: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    per_unit: int = 1
    hints: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.sequences) // self.per_unit

    @property
    def cut(self) -> int:
        """The number of units that were truncated."""
        return int(self.sequences.cut.reshape(len(self), self.per_unit).any(axis=1).sum())

    def notes(self) -> list[str]:
        """Return notes on what the model does not see or cannot predict, one line each."""
        return [self.cut_note(self.cut, len(self))] if self.cut else []

    def cut_note(self, cut: int, count: int) -> str:
        """Return the note that `cut` of `count` examples were truncated."""
        limit = f"task.seq_length={self.seq_length}"
        return f"{cut:,} of {count:,} examples are longer than {limit} and are truncated"

    @functools.cached_property
    def unit_lengths(self) -> np.ndarray:
        """The length of the longest sequence of each unit, int32 [N]."""
        return self.sequences.lengths.reshape(len(self), self.per_unit).max(axis=1)

    def batch(
        self, units: tf.Tensor, length: int | None = None
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """Return inputs [B, S], or [B, per_unit, S] if `per_unit` > 1, and targets [B, ...].

        The inputs include the hints [B, ...].

        Args:
          units: integers [B], the indices of the units.
          length: S; by default the length of the longest sequence, rounded up to the bucket.
        """
        rows = units = tf.cast(units, tf.int32)
        if self.per_unit > 1:
            rows = units[:, None] * self.per_unit + tf.range(self.per_unit)
            count = units.shape[0]  # a TPU needs static shapes
            rows = tf.reshape(rows, [-1 if count is None else count * self.per_unit])
        inputs = self.sequences.inputs(
            rows, self.sequences.padded_length(rows, self.seq_length) if length is None else length
        )
        if self.per_unit > 1:
            width = tf.shape(inputs["input_mask"])[1] if length is None else length
            shape = [-1 if count is None else count, self.per_unit, width]
            inputs = {name: tf.reshape(value, shape) for name, value in inputs.items()}
        hints, targets = (
            {name: tf.gather(value, units) for name, value in constants.items()}
            for constants in self._constants
        )
        return inputs | hints, targets

    @functools.cached_property
    def _constants(self) -> list[dict[str, tf.Tensor]]:
        with tf.init_scope():
            return [
                {name: tf.constant(value) for name, value in values.items()}
                for values in (self.hints, self.targets)
            ]


def concatenate(parts: Sequence[Features]) -> Features:
    """Concatenate the units of several features, which must have no hints."""
    begin = parts[0]

    def concatenated(name: str) -> np.ndarray:
        return np.concatenate([getattr(part.sequences, name) for part in parts])

    sequences = Sequences(
        concatenated("ids"),
        concatenated("lengths"),
        concatenated("first_lengths"),
        begin.sequences.pad,
        concatenated("cut"),
    )
    targets = {
        name: np.concatenate([part.targets[name] for part in parts]) for name in begin.targets
    }
    return dataclasses.replace(begin, sequences=sequences, targets=targets)


def pack(
    first: Sequence[Sequence[int]],
    second: Sequence[Sequence[int]] | None,
    seq_length: int,
    special: SpecialIds,
) -> Sequences:
    """Pack ids without special pieces into [CLS] A [SEP] or [CLS] A [SEP] B [SEP].

    Sequences that are too long lose pieces at the end of the longer part.
    """
    begin, end = [special.cls], [special.sep]
    lengths = np.array([len(ids) for ids in first], np.int32)
    if second is None:
        kept = np.minimum(lengths, seq_length - 2)
        parts = ((begin, ids[:n], end) for ids, n in zip(first, kept.tolist(), strict=True))
        return _sequences(parts, kept + 2, kept + 2, special, kept < lengths)
    others = np.array([len(ids) for ids in second], np.int32)
    kept, other_kept = truncated_lengths(lengths, others, seq_length - 3)
    pairs = zip(first, second, kept.tolist(), other_kept.tolist(), strict=True)
    parts = ((begin, a[:n], end, b[:m], end) for a, b, n, m in pairs)
    cut = kept + other_kept < lengths + others
    return _sequences(parts, kept + other_kept + 3, kept + 2, special, cut)


def _sequences(
    parts: Iterable[Sequence[Sequence[int]]],
    lengths: np.ndarray,
    first_lengths: np.ndarray,
    special: SpecialIds,
    cut: np.ndarray,
) -> Sequences:
    flat = chain.from_iterable(chain.from_iterable(parts))
    ids = np.fromiter(flat, np.int32, int(lengths.sum()))
    return Sequences(ids, lengths, first_lengths, special.pad, cut)
