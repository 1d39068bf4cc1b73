"""Token sequences for task models, stored end to end and padded per batch."""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.text.tokenizer import SpecialIds
from albert_tf.text.truncation import truncated_lengths

LONG_TEXTS = ("cut", "mean", "max")  # values of `task.long_texts`
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
        total, first = (tf.gather(column, rows)[:, None] for column in lengths)
        ids = tf.gather(every, rows).to_tensor(self.pad)  # [B, longest]
        ids = tf.pad(ids, [[0, 0], [0, length - tf.shape(ids)[1]]], constant_values=self.pad)
        ids = tf.ensure_shape(ids, [rows.shape[0], length if isinstance(length, int) else None])
        positions = tf.range(length)[None, :]
        return {
            "input_word_ids": ids,
            "input_mask": tf.cast(positions < total, tf.int32),
            "input_type_ids": tf.cast((positions >= first) & (positions < total), tf.int32),
        }

    def arrays(self, length: int) -> dict[str, np.ndarray]:
        """Return `inputs` of all sequences, int32 [N, length], as arrays.

        For a few sequences, that is faster than the operations of `inputs`, called one by one.
        """
        positions = np.arange(length)
        is_real = positions < self.lengths[:, None]  # [N, length]
        ids: np.ndarray = np.full(is_real.shape, self.pad, np.int32)
        ids[is_real] = self.ids
        is_second = is_real & (positions >= self.first_lengths[:, None])
        return {
            "input_word_ids": ids,
            "input_mask": is_real.astype(np.int32),
            "input_type_ids": is_second.astype(np.int32),
        }

    def at_places(self, places: np.ndarray) -> "Sequences":
        """Return the sequences at the True places, bool [M], and ones without pieces elsewhere.

        There must be as many places as sequences.
        """

        def placed(values: np.ndarray) -> np.ndarray:
            result: np.ndarray = np.zeros(len(places), values.dtype)
            result[places] = values
            return result

        return dataclasses.replace(
            self,
            lengths=placed(self.lengths),
            first_lengths=placed(self.first_lengths),
            cut=placed(self.cut),
        )

    def padded_length(self, rows: tf.Tensor, longest: int) -> tf.Tensor:
        """Return the longest length in `rows`, rounded up to the bucket, at most `longest`."""
        needed = tf.reduce_max(tf.gather(self._tensors[1], rows))
        return tf.minimum(-(-needed // BUCKET) * BUCKET, longest)


@dataclasses.dataclass(frozen=True)
class Features:
    """The inputs and targets of a task model: N units of `per_unit` sequences each.

    >>> from albert_tf.tasks.kinds import KINDS
    >>> tokenizer, kind = albert_tf.load_tokenizer("albert-mini-en"), KINDS["regressor"]
    >>> texts = [albert_tf.TextExample(text, label=len(text)) for text in ("Ships sail.", "Go!")]
    >>> features = kind.featurize(texts, tokenizer, kind.settings(seq_length=64))
    >>> inputs, targets = features.batch(tf.range(2))  # padded to equal lengths
    >>> inputs["input_word_ids"].shape, targets["label"].numpy()
    (TensorShape([2, 32]), array([11.,  3.], dtype=float32))

    Attributes:
      sequences: N x per_unit sequences; those of a unit are adjacent.
      seq_length: the maximum length of a sequence.
      targets: name -> [N, ...]; empty if they are unknown.
      per_unit: the number of sequences in a unit.
      hints: name -> [N, ...], inputs for training in addition to the sequences.
      limits: the settings that limit an example, for notes; by default `task.seq_length`.
      unit_name: what a unit is, in notes.
    """

    sequences: Sequences
    seq_length: int
    targets: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    per_unit: int = 1
    hints: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    limits: str = ""
    unit_name: str = "examples"

    def __len__(self) -> int:
        return len(self.sequences) // self.per_unit

    def widened(self, per_unit: int) -> "Features":
        """Return the features with this many sequences in a unit, some of them without pieces."""
        assert per_unit == self.per_unit, "units of this kind have equally many"
        return self

    @property
    def num_examples(self) -> int:
        """The number of examples, or of the texts of a search."""
        return len(self)

    @property
    def cut(self) -> int:
        """The number of those that were truncated."""
        return int(self.cut_units.sum())

    @property
    def cut_units(self) -> np.ndarray:
        """True for the units that were truncated, bool [N]."""
        rows: np.ndarray = self.sequences.cut.reshape(len(self), self.per_unit)
        return np.logical_or.reduce(rows, axis=1)

    def notes(self) -> list[str]:
        """Return notes on what the model does not see or cannot predict, one line each."""
        return self.length_notes(self.totals())

    def totals(self) -> dict[str, int]:
        """Return the numbers for `length_notes`; those of several features may be added."""
        return {"examples": self.num_examples, "cut": self.cut}

    def length_notes(self, totals: Mapping[str, int]) -> list[str]:
        """Return notes on examples that are too long, one line each."""
        if not totals["cut"]:
            return []
        limits = self.limits or f"task.seq_length={self.seq_length}"
        return [
            f"{totals['cut']:,} of {totals['examples']:,} {self.unit_name} are longer than "
            f"{limits} and are truncated"
        ]

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartFeatures(Features):
    """Features in which an example has one or more units.

    Attributes:
      example: int32 [N], the index of each unit's example, ascending.
    """

    example: np.ndarray

    @property
    def num_examples(self) -> int:
        """The number of examples."""
        return len(np.unique(self.example))

    @property
    def cut(self) -> int:
        """The number of examples with a truncated unit."""
        return len(np.unique(self.example[self.cut_units]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFeatures(PartFeatures):
    """The features of texts or pairs, or of the windows of long texts."""

    def totals(self) -> dict[str, int]:
        """Return the numbers for `length_notes`, those of windows too."""
        split = int(np.count_nonzero(np.bincount(self.example) > 1))
        return super().totals() | {"split": split, "units": len(self)}

    def length_notes(self, totals: Mapping[str, int]) -> list[str]:
        """Return notes on texts that are truncated or read in windows, one line each."""
        notes = super().length_notes(totals)
        if totals["split"]:
            notes.append(
                f"{totals['split']:,} of {totals['examples']:,} texts are longer than "
                f"task.seq_length={self.seq_length} and are read in windows, "
                f"{totals['units']:,} in all"
            )
        return notes

    def pooled(self, values: np.ndarray, long_texts: str) -> np.ndarray:
        """Return the values of the texts, [texts, ...], from those of their windows, [N, ...].

        They are the windows' maximum if `long_texts` is `max`, otherwise their mean.
        """
        starts = np.flatnonzero(np.diff(self.example, prepend=-1))
        if long_texts == "max":
            return np.maximum.reduceat(values, starts, axis=0)
        counts = np.diff(starts, append=len(values))
        shape = (-1, *(1,) * (values.ndim - 1))
        return np.add.reduceat(values, starts, axis=0) / counts.reshape(shape)


def split_windows(
    rows: Sequence[list[int]], limit: int | np.ndarray
) -> tuple[list[list[int]], np.ndarray]:
    """Split rows that are longer than `limit` into the fewest windows of about the same length.

    Return the windows, and the index of the row of each, int32. There may be a limit for each row.
    """
    limits = np.broadcast_to(limit, len(rows)).tolist()
    parts: list[list[int]] = []
    row_of: list[int] = []
    for number, (ids, longest) in enumerate(zip(rows, limits, strict=True)):
        count = max(1, -(-len(ids) // longest))
        bounds = [k * len(ids) // count for k in range(count + 1)]
        parts += [ids[begin:end] for begin, end in itertools.pairwise(bounds)]
        row_of += [number] * count
    return parts, np.array(row_of, np.int32)


def concatenate(parts: Sequence[Features]) -> Features:
    """Concatenate the units of several features, for training."""
    widest = max(part.per_unit for part in parts)
    parts = [part.widened(widest) for part in parts]
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
    targets, hints = (
        {name: np.concatenate([getattr(part, values)[name] for part in parts]) for name in names}
        for values, names in (("targets", begin.targets), ("hints", begin.hints))
    )
    return Features(sequences, begin.seq_length, targets, begin.per_unit, hints)


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
        kept_lengths = np.minimum(lengths, seq_length - 2)
        parts = ((begin, ids[:n], end) for ids, n in zip(first, kept_lengths.tolist(), strict=True))
        return _sequences(
            parts, kept_lengths + 2, kept_lengths + 2, special, kept_lengths < lengths
        )
    others = np.array([len(ids) for ids in second], np.int32)
    kept_lengths, other_kept_lengths = truncated_lengths(lengths, others, seq_length - 3)
    pairs = zip(first, second, kept_lengths.tolist(), other_kept_lengths.tolist(), strict=True)
    parts = ((begin, a[:n], end, b[:m], end) for a, b, n, m in pairs)
    cut = kept_lengths + other_kept_lengths < lengths + others
    return _sequences(parts, kept_lengths + other_kept_lengths + 3, kept_lengths + 2, special, cut)


def _sequences(
    parts: Iterable[Sequence[Sequence[int]]],
    lengths: np.ndarray,
    first_lengths: np.ndarray,
    special: SpecialIds,
    cut: np.ndarray,
) -> Sequences:
    flat = itertools.chain.from_iterable(itertools.chain.from_iterable(parts))
    ids = np.fromiter(flat, np.int32, int(lengths.sum()))
    return Sequences(ids, lengths, first_lengths, special.pad, cut)
