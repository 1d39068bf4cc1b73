"""A probe that predicts the label of a segment pair from frozen outputs, for any objective.

The probe is a logistic regression from the mean of the last layer's outputs over a sequence
(padding excluded) to the pair's label. It is fitted on half of the held-out pairs and scored on the
other half. The halves have no document in common. This includes the partners of records, which
are drawn from the record's own half.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from albert_tf.runtime import keyed_random
from data.objectives.masking import MaskingConfig
from data.objectives.pair_objective import PairObjective
from data.objectives.partners import Partners
from data.pipeline.batches import Records, evaluation_batches, padded_batch
from data.pipeline.example_maker import ExampleMaker, max_pieces
from data.pipeline.record_stream import records_in_order
from data.records.manifest import COMPACT
from pretraining.evaluation.estimates import Estimate, estimate

FIT, SCORE, NEITHER = 0, 1, 2  # the use of a pair
# The inverse of the weight of |w|^2 / 2 relative to the sum of the losses. Features are
# standardized.
INVERSE_STRENGTH = 0.01
MAX_PAIRS = 20_000  # approximately the first 20,000: 330 MB with 4096 features
_SEED = 0
_READ_AT_ONCE = 1024


class Probe:
    """A collector of outputs for pairs, with a score of how well they predict the labels."""

    def __init__(self) -> None:
        self._rows: list[tuple[np.ndarray, ...]] = []
        self._count = 0

    def add(self, features: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> None:
        """Add the rows of a batch of `probe_batches` that the probe uses; features are [B, H]."""
        half = batch["probe_half"].numpy()
        used = (half != NEITHER) & (self._count < MAX_PAIRS)
        documents = batch["document"].numpy()
        columns = features.numpy(), batch["pair_label"].numpy(), half, documents
        self._rows.append(tuple(column[used] for column in columns))
        self._count += int(used.sum())

    def score(self) -> Estimate | None:
        """Return `fit_and_score` of the rows added so far."""
        return fit_and_score(*map(np.concatenate, zip(*self._rows, strict=True)))


def fit_and_score(
    features: np.ndarray, labels: np.ndarray, halves: np.ndarray, documents: np.ndarray
) -> Estimate | None:
    """Fit on the first half of the pairs and return the accuracy on the second.

    Args:
      features: float [n, H].
      labels: int [n].
      halves: int [n], FIT, SCORE or NEITHER.
      documents: int [n].

    Returns:
      The accuracy. None if there is no pair to score, the pairs to fit have only one label, or
      the features are not finite because the model diverged.
    """
    # Imported here because it takes seconds.
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fit, score = halves == FIT, halves == SCORE
    has_classes = score.any() and len(np.unique(labels[fit])) > 1
    if not has_classes or not np.isfinite(features).all():
        return None
    model = make_pipeline(StandardScaler(), LogisticRegression(C=INVERSE_STRENGTH, max_iter=1000))
    model.fit(features[fit].astype(np.float64), labels[fit])
    right = model.predict(features[score].astype(np.float64)) == labels[score]
    return estimate(right.astype(float), np.ones(len(right)), documents[score])


@dataclasses.dataclass(frozen=True)
class Halves:
    """A split of the documents into two halves by a keyed draw for each document.

    Attributes:
      cut: documents with a draw above it are in the second half. Of all cuts, this one makes the
        halves' numbers of pairs most nearly equal.
    """

    cut: int

    @classmethod
    def of_pairs(cls, records: Records) -> "Halves":
        """Return the halves of compact records; with one document the second half is empty."""
        schema, draws = records.manifest.schema, []
        for raw, *_ in records_in_order(records.shards()).batch(_READ_AT_ONCE):
            parsed = schema.parse(raw)
            has_pair = tf.cast(parsed["pieces_length"], tf.int64) > parsed["first_length"]
            draws.append(_draw(parsed["document"])[has_pair].numpy())
        ordered, counts = np.unique(np.concatenate(draws), return_counts=True)
        if len(ordered) < 2:
            return cls(tf.int64.max)
        before = np.cumsum(counts)[:-1]
        return cls(int(ordered[np.argmin(np.abs(2 * before - counts.sum()))]))

    def of(self, document: tf.Tensor) -> tf.Tensor:
        """Return FIT or SCORE, int32 [n], for documents, int64 [n]."""
        return tf.where(_draw(document) > self.cut, SCORE, FIT)


def _draw(document: tf.Tensor) -> tf.Tensor:
    key = tf.constant(keyed_random.stream_key(_SEED, keyed_random.HALVES), tf.uint64)
    draw = keyed_random.graph_bits(key, document)
    return tf.cast(tf.bitwise.right_shift(draw, tf.constant(1, tf.uint64)), tf.int64)


@dataclasses.dataclass(frozen=True)
class HalfPartners(Partners):
    """Partners from the record's own half, or any partners if that half has none.

    Attributes:
      halves: the split of the documents.
    """

    halves: Halves

    def choose(
        self, raw: tf.Tensor, index: tf.Tensor, epoch: tf.Tensor, others: tf.Tensor
    ) -> tf.Tensor:
        """Return a partner for each record, with arguments as in `Partners.choose`."""
        placeholder = self.schema.encode(
            {"pieces": (), "word_starts": (), "first_length": 0, "document": -1}
        )
        chosen = super().choose(raw, index, epoch, others)
        halves = self._half(others)
        for half in (FIT, SCORE):
            partner = super().choose(
                raw, index, epoch, tf.where(halves == half, others, placeholder)
            )
            chosen = tf.where(self.half_of(raw, partner) == half, partner, chosen)
        return chosen

    def half_of(self, raw: tf.Tensor, partner: tf.Tensor) -> tf.Tensor:
        """Return the use of records with these partners, int32 [n].

        It does not depend on whether the partner replaces segment B: otherwise the labels would not
        be balanced.
        """
        document, other = self._document_and_length(raw)[0], self._document_and_length(partner)
        half = self._half(raw)
        is_usable = (other[0] != document) & (other[1] > 0) & (self._half(partner) == half)
        return tf.where(is_usable, half, NEITHER)

    def _half(self, raw: tf.Tensor) -> tf.Tensor:
        return self.halves.of(self._document_and_length(raw)[0])


def probe_batches(
    records: Records,
    objective: PairObjective,
    masking: MaskingConfig,
    batch_size: int,
    halves: Halves | None,
) -> tf.data.Dataset:
    """Return `evaluation_batches` with two more columns.

    `probe_half`, int32 [B], is FIT, SCORE or NEITHER. `document`, int64 [B], numbers the documents,
    or the rows if the records do not identify their documents.

    Args:
      records: the held-out records.
      objective: makes the pairs.
      masking: makes the masks.
      batch_size: the number of rows of every batch.
      halves: None if no probe is needed; all rows are then NEITHER.
    """
    manifest = records.manifest
    if manifest.layout != COMPACT:
        batches = evaluation_batches(records, objective, masking, batch_size).enumerate()
        rows, neither = tf.range(batch_size, dtype=tf.int64), tf.fill([batch_size], NEITHER)
        return batches.map(
            lambda n, batch: batch | {"document": n * batch_size + rows, "probe_half": neither}
        )
    masking = dataclasses.replace(masking, first_rate=0.0)  # only training has a schedule
    examples, partners = ExampleMaker(manifest, objective, masking, _SEED), None
    if halves and objective.has_partners:
        partners = HalfPartners(manifest.schema, max_pieces(manifest.seq_length), _SEED, halves)

    def with_half(*fields: tf.Tensor) -> dict[str, tf.Tensor]:
        document = manifest.schema.parse(fields[0])["document"]
        if partners:
            half = partners.half_of(fields[0], fields[-1])
        else:
            half = halves.of(document) if halves else tf.fill(tf.shape(document), NEITHER)
        return examples(*fields) | {"document": document, "probe_half": half}

    @tf.autograph.experimental.do_not_convert  # nothing to convert, but trying takes seconds
    def make(*fields: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = padded_batch(with_half, batch_size, *fields)
        half = tf.where(batch["pair_weight"] > 0, batch["probe_half"], NEITHER)
        return batch | {"probe_half": half}

    dataset = records_in_order(records.shards(), partners).batch(batch_size)
    return dataset.map(make, num_parallel_calls=tf.data.AUTOTUNE).prefetch(4)
