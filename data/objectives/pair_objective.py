"""Objectives of pairs: what of a record the model reads, and which class it should predict.

`objective.pair` chooses one when records are read. To add one, derive from `PairObjective` in a
file of its own and list it in `data/objectives/registry.py`.
"""

import dataclasses
from collections.abc import Mapping

import tensorflow as tf

from albert_tf.models.head import PAIR_HEAD, Head
from albert_tf.runtime.errors import ConfigError
from data.objectives import DEFAULT_PAIR
from data.objectives.objective import Objective
from data.records.manifest import COMPACT, Manifest

Record = Mapping[str, tf.Tensor]  # a batch of compact records, as their schema parses it


@dataclasses.dataclass(frozen=True)
class Segments:
    """The segments of each sequence as ranges of its pieces; all [B].

    `weight` is bool, `label` bool or int32, and the others are int32. The pieces of a partner
    follow those of the record.
    """

    first_begin: tf.Tensor
    first_length: tf.Tensor
    second_begin: tf.Tensor
    second_length: tf.Tensor
    label: tf.Tensor
    weight: tf.Tensor


class PairObjective(Objective):
    """An objective of the two segments of a record, predicted from the pooled output.

    A subclass overrides `draw`, and `check` if not all records support it.

    Attributes:
      name: its value of `objective.pair`.
      classes: the meaning of each label, from 0 on. Their draws must be equally probable.
      without_label: the meaning of a weight of 0.
      has_partners: True if `draw` needs a record of another document for each record.
    """

    labels, weights = "pair_label", "pair_weight"
    classes: tuple[str, ...]
    without_label: str
    has_partners = False

    @property
    def num_classes(self) -> int:
        """The number of classes; with none, the head is ALBERT's, as for `none`."""
        return len(self.classes) or 2

    @property
    def head(self) -> Head:
        """A head with these classes."""
        return dataclasses.replace(PAIR_HEAD, num_classes=self.num_classes)

    def legend(self) -> str:
        """Return a line that explains the labels."""
        meanings = [f"{number}: {meaning}" for number, meaning in enumerate(self.classes)]
        return f"label {'; '.join([*meanings, f'none: {self.without_label}'])}"

    def draw(
        self, record: Record, partner: Record | None, key: tf.Tensor, max_pieces: int
    ) -> Segments:
        """Draw the segments of each sequence and its label.

        Args:
          record: the records.
          partner: their partners, if `has_partners`.
          key: uint64 [B], the random bits of each record in this epoch.
          max_pieces: the maximum number of pieces of both segments together.
        """
        raise NotImplementedError

    def check(self, manifest: Manifest) -> None:
        """Check that the records support the objective.

        Raises:
          ConfigError: no record has a second segment, or the pairs are labeled for another
            objective.
        """
        counts, labeled = manifest.counts, pair_of(manifest)
        if manifest.layout == COMPACT and 0 < counts.sequences == counts.sequences_without_pair:
            raise ConfigError(
                f"`objective.pair={self.name}` needs documents of two or more sentences. "
                f"Received: {counts.sequences} records without a second segment. Choose none, or "
                "build with another --document_boundary."
            )
        if manifest.layout != COMPACT and self.name != labeled:
            raise ConfigError(
                f"`objective.pair` must be the objective of the records' labels, {labeled}, or "
                f"none. Received: {self.name!r}. Choose one, or build with --layout=compact."
            )


class NoPairs(PairObjective):
    """No objective of pairs: the segments stay in order, and the head keeps its initial weights."""

    name, is_trained = "none", False
    classes, without_label = (), "no pair is predicted"

    def draw(
        self, record: Record, partner: Record | None, key: tf.Tensor, max_pieces: int
    ) -> Segments:
        """Return A then B, with weight 0."""
        first, second = segment_lengths(record)
        never = tf.zeros_like(first, tf.bool)
        return Segments(tf.zeros_like(first), first, first, second, never, never)

    def check(self, manifest: Manifest) -> None:
        """Do nothing: all records support it."""


def pair_of(manifest: Manifest) -> str:
    """Return the name of the objective of the labels that records of another layout store."""
    pair: str = manifest.build_options.get("pair", DEFAULT_PAIR)
    return pair


def segment_lengths(record: Record) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the numbers of pieces of segments A and B, int32 [B]."""
    first = tf.cast(record["first_length"], tf.int32)
    return first, record["pieces_length"] - first


def bit(key: tf.Tensor, index: int) -> tf.Tensor:
    """Return one bit of the keys, int32."""
    return tf.cast(tf.bitwise.right_shift(key, tf.constant(index, tf.uint64)) & 1, tf.int32)
