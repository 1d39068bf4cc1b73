"""The probe: what frozen outputs tell of a pair of segments, whatever the model was trained with.

Logistic regression from the mean of the last layer's outputs over a sequence (padding excluded) to
the pair's label, fitted on half of the held-out pairs and scored on the other. The halves have no
document in common, and neither have the partners of NSP's random pairs: these are drawn from the
record's own half.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from albert_tf.runtime import keyed_random
from data.pipeline.batches import Records, evaluation_batches, padded_batch
from data.pipeline.example_maker import ExampleMaker, max_pieces
from data.pipeline.masking import MaskingConfig
from data.pipeline.pair_objective import Objective, Partners
from data.pipeline.record_stream import records_in_order

FIT, SCORE, NEITHER = 0, 1, 2  # what a pair is for
# The inverse of the weight of |w|^2 / 2 beside the sum of the losses; of standardised features.
INVERSE_STRENGTH = 0.01
MAX_PAIRS = 20_000  # about; the first ones: at 4096 features these are 330 MB
_SEED = 0
_READ_AT_ONCE = 1024

Score = tuple[float, int]  # the share of pairs that a probe got right, and of how many


class Probe:
    """Collects what a model puts out for pairs, and scores what that tells of their labels."""

    def __init__(self) -> None:
        self._rows: list[tuple[np.ndarray, ...]] = []
        self._count = 0

    def add(self, features: tf.Tensor, batch: Mapping[str, tf.Tensor]) -> None:
        """Takes the rows of `probe_batches`'s `batch` that are for the probe; features [B, H]."""
        half = batch["probe_half"].numpy()
        used = (half != NEITHER) & (self._count < MAX_PAIRS)
        columns = features.numpy(), batch["pair_label"].numpy(), half
        self._rows.append(tuple(column[used] for column in columns))
        self._count += int(used.sum())

    def score(self) -> Score | None:
        """As `fit_and_score`."""
        return fit_and_score(*map(np.concatenate, zip(*self._rows, strict=True)))


def fit_and_score(features: np.ndarray, labels: np.ndarray, halves: np.ndarray) -> Score | None:
    """Float [n, H], int [n], and FIT, SCORE or NEITHER [n] -> the score on the second half.

    None where it cannot be: no pair to score, not both labels to fit, or features of a model that
    diverged.
    """
    # Seconds to import: only where it is used.
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fit, score = halves == FIT, halves == SCORE
    is_feasible = score.any() and len(np.unique(labels[fit])) == 2 and np.isfinite(features).all()
    if not is_feasible:
        return None
    model = make_pipeline(StandardScaler(), LogisticRegression(C=INVERSE_STRENGTH, max_iter=1000))
    model.fit(features[fit].astype(np.float64), labels[fit])
    right = model.predict(features[score].astype(np.float64)) == labels[score]
    return float(right.mean()), len(right)


@dataclasses.dataclass(frozen=True)
class Halves:
    """Documents in two halves, by a keyed draw of each that is above `cut` or not.

    The cut is where the halves' numbers of pairs come nearest to each other.
    """

    cut: int

    @classmethod
    def of_pairs(cls, records: Records) -> "Halves":
        """The halves of compact records; with a single document the second one is empty."""
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
        """Int64 [n] -> FIT or SCORE, int32 [n]."""
        return tf.where(_draw(document) > self.cut, SCORE, FIT)


def _draw(document: tf.Tensor) -> tf.Tensor:
    key = tf.constant(keyed_random.stream_key(_SEED, keyed_random.HALVES), tf.uint64)
    draw = keyed_random.graph_bits(key, document)
    return tf.cast(tf.bitwise.right_shift(draw, tf.constant(1, tf.uint64)), tf.int64)


@dataclasses.dataclass(frozen=True)
class HalfPartners(Partners):
    """Partners of the record's own half; where that has none, any."""

    halves: Halves

    def choose(
        self, raw: tf.Tensor, index: tf.Tensor, epoch: tf.Tensor, others: tf.Tensor
    ) -> tf.Tensor:
        """As `Partners.choose`."""
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
        """What records with these partners are for, int32 [n].

        That does not depend on whether the partner takes the place of segment B: else the labels
        would not be half and half.
        """
        document, other = self._document_and_length(raw)[0], self._document_and_length(partner)
        half = self._half(raw)
        is_usable = (other[0] != document) & (other[1] > 0) & (self._half(partner) == half)
        return tf.where(is_usable, half, NEITHER)

    def _half(self, raw: tf.Tensor) -> tf.Tensor:
        return self.halves.of(self._document_and_length(raw)[0])


def probe_batches(
    records: Records, pair: str, masking: MaskingConfig, batch_size: int, halves: Halves | None
) -> tf.data.Dataset:
    """`evaluation_batches` with `probe_half`, int32 [B], of each row: FIT, SCORE or NEITHER.

    pair: an objective's name. halves: None for records that do not tell their documents; then all
    are NEITHER.
    """
    objective, manifest = Objective(pair), records.manifest
    if halves is None:
        batches = evaluation_batches(records, objective, masking, batch_size)
        return batches.map(lambda batch: batch | {"probe_half": tf.fill([batch_size], NEITHER)})
    examples, partners = ExampleMaker(manifest, objective, masking, _SEED), None
    if pair == "nsp":
        partners = HalfPartners(manifest.schema, max_pieces(manifest.seq_length), _SEED, halves)

    def with_half(*fields: tf.Tensor) -> dict[str, tf.Tensor]:
        half = (
            partners.half_of(fields[0], fields[-1])
            if partners
            else halves.of(manifest.schema.parse(fields[0])["document"])
        )
        return examples(*fields) | {"probe_half": half}

    @tf.autograph.experimental.do_not_convert  # graph operations only: converting takes seconds
    def make(*fields: tf.Tensor) -> dict[str, tf.Tensor]:
        batch = padded_batch(with_half, batch_size, *fields)
        half = tf.where(batch["pair_weight"] > 0, batch["probe_half"], NEITHER)
        return batch | {"probe_half": half}

    dataset = records_in_order(records.shards(), partners).batch(batch_size)
    return dataset.map(make, num_parallel_calls=tf.data.AUTOTUNE).prefetch(4)
