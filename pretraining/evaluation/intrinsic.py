"""Held-out losses and accuracies of a pretrainer, with baselines and standard errors."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime import devices
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.runtime.standard_errors import MIN_EXAMPLES
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.progress import Progress
from albert_tf.training.step import num_parts, parallel_parts, split_batch
from data.pipeline.batches import Objective, Records, check_objective
from data.records.manifest import COMPACT, Manifest
from pretraining.evaluation.probe import Halves, Probe, Score, probe_batches
from pretraining.loop.config import PretrainConfig
from pretraining.loop.losses import SUMS, means, pretraining_sums
from pretraining.loop.train_step import MODEL_INPUTS

PAIRS = ("sop", "nsp")
PROBES = ("probe", "lengths")  # on the model's outputs, and on nothing but the segments' lengths


class Evaluator:
    """A repeatable evaluation of a model on held-out records, with one traced function.

    Masked LM is evaluated on the pairs of the model's training objective. The pair head and a probe
    (`pretraining.evaluation.probe`) are then evaluated on both SOP and NSP pairs (paper section
    4.6). Masks and pairs are the same in every run.

    Under a strategy, the replicas share each batch and every worker returns the same metrics.

    Args:
      model: the model to evaluate.
      records: the held-out records.
      config: its `objective` is the training objective; its `masking` makes the masks.
      batch_size: over all replicas.
      trained_only: skips the probe and the objective that the model was not trained with. A run is
        then one pass over the records, fast enough to be repeated during training.
      strategy: by default the current one.
      tokenizer: that of the records; adds `bits_per_character/mlm`.
    """

    def __init__(
        self,
        model: AlbertPretrainer,
        records: Records,
        config: PretrainConfig,
        batch_size: int,
        trained_only: bool = False,
        strategy: tf.distribute.Strategy | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._manifest, self._trained_with = records.manifest, config.objective.pair
        self._probes = not trained_only and records.manifest.layout == COMPACT
        feasible, self._notes = _feasible_pairs(records.manifest)
        self._mlm_pair = self._trained_with
        if self._trained_with not in (*feasible, "none"):
            self._mlm_pair = "none"
            self._notes.append("MLM is not evaluated on the pairs that the model was trained with.")
        pairs = [] if trained_only else feasible
        # Finding the halves reads all records. NSP draws each partner from the record's own half.
        needs_halves = self._probes or self._mlm_pair == "nsp"
        is_compact = records.manifest.layout == COMPACT
        halves = Halves.of_pairs(records) if is_compact and needs_halves else None
        self._batches = {
            pair: probe_batches(records, pair, config.masking, batch_size, halves)
            for pair in dict.fromkeys([self._mlm_pair, *pairs])
        }
        self._forward = _forward(model, batch_size, strategy or tf.distribute.get_strategy())

    @property
    def num_sequences(self) -> int:
        """The number of sequences that a run reads, over all passes."""
        return len(self._batches) * self._manifest.num_records

    def run(self, advance: Callable[[int], None] = lambda count: None) -> dict[str, Any]:
        """Return the metrics, and call `advance` with the number of sequences of each batch done.

        For x in mlm, sop and nsp: `loss/x`, `accuracy/x`, `standard_error/x` (over documents; see
        `error_over_documents`), `count/x`; for x in sop and nsp also `verdict/x`, and for the probe
        `probe/x`, `standard_error/probe_x` (binomial), `count/probe_x` and `verdict/probe_x`; the
        same under `lengths` for a probe that sees only the number of pieces in each segment.
        Losses are in nats per masked piece or pair. `bits_per_character/mlm`, which needs the
        tokenizer, is the MLM loss in bits divided by the number of characters of the masked pieces,
        which makes vocabularies comparable. `baseline/mlm` is the accuracy of always
        predicting the most frequent piece, `baseline/pair` that of the most frequent label.
        `trained_with` is sop, nsp or none.

        `loss/pair` and the other keys in /pair, as in metrics.jsonl, repeat those of
        `trained_with`. Metrics that cannot be computed are absent, and `notes` gives the reasons.
        """
        result: dict[str, Any] = {"trained_with": self._trained_with, "notes": list(self._notes)}
        chance = _chance(self._manifest)
        for pair in self._batches:
            rows, documents, targets, probes = self._pass(pair, advance)
            sums = {name: float(column.sum()) for name, column in rows.items()}
            figures = means(sums)
            errors = {
                what: error_over_documents(
                    rows[f"{what}_correct"], rows[f"{what}_count"], documents
                )
                for what in ("mlm", "pair")
            }
            if pair == self._mlm_pair:
                result["baseline/mlm"] = float(targets.max() / targets.sum())
                result["loss/mlm"] = figures["loss/mlm"]
                if self._tokenizer:
                    bits = sums["mlm_loss"] / math.log(2)
                    characters = float(targets @ self._tokenizer.num_characters)
                    result["bits_per_character/mlm"] = bits / characters
                result |= _figures(
                    "accuracy/mlm", figures["accuracy/mlm"], sums["mlm_count"], errors["mlm"]
                )
            if sums["pair_count"] and self._trained_with != "none":
                result[f"loss/{pair}"] = figures["loss/pair"]
                share, count = figures["accuracy/pair"], sums["pair_count"]
                result |= _figures(f"accuracy/{pair}", share, count, errors["pair"], chance)
            for kind, (share, count) in probes.items():
                error = math.sqrt(share * (1 - share) / count)
                result |= _figures(f"{kind}/{pair}", share, count, error, chance)
            if self._probes and pair != "none" and "probe" not in probes:
                result["notes"].append(
                    f"no {pair.upper()} probe: too few pairs or documents, or outputs that are not "
                    "finite."
                )
        result["baseline/pair"] = chance
        for kind in ("loss", "accuracy", "standard_error", "count", "verdict"):
            if f"{kind}/{self._trained_with}" in result:
                result[f"{kind}/pair"] = result[f"{kind}/{self._trained_with}"]
        return result

    def _pass(
        self, pair: str, advance: Callable[[int], None]
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, dict[str, Score]]:
        """Read all records once.

        Return the SUMS and the documents of all rows, float64 and int64 [N], the counts of masked
        pieces, int64 [V], and the probes' scores.
        """
        rows, documents = [], []
        targets: np.ndarray = np.zeros(self._manifest.vocab_size, np.int64)
        probes = {kind: Probe() for kind in PROBES if self._probes and pair != "none"}
        remaining = self._manifest.num_records
        for batch in self._batches[pair]:
            sums, features = self._forward(batch)
            rows.append(sums.numpy())
            documents.append(batch["document"].numpy())
            real = batch["masked_lm_weights"].numpy() > 0
            targets += np.bincount(batch["masked_lm_ids"].numpy()[real], minlength=len(targets))
            for kind, probe in probes.items():
                probe.add(features if kind == "probe" else _lengths(batch), batch)
            advance(done := min(remaining, len(real)))
            remaining -= done
        columns = dict(zip(SUMS, np.concatenate(rows).astype(np.float64).T, strict=True))
        scores = {kind: probe.score() for kind, probe in probes.items()}
        found = {kind: score for kind, score in scores.items() if score}
        return columns, np.concatenate(documents), targets, found


def evaluate(
    model: AlbertPretrainer,
    records: Records,
    config: PretrainConfig,
    batch_size: int,
    strategy: tf.distribute.Strategy | None = None,
    tokenizer: Tokenizer | None = None,
) -> dict[str, Any]:
    """Return the metrics of one `Evaluator.run`, with a progress bar."""
    evaluator = Evaluator(
        model, records, config, batch_size, strategy=strategy, tokenizer=tokenizer
    )
    with Progress("sequences", evaluator.num_sequences) as progress:
        return evaluator.run(progress.advance)


def _forward(
    model: AlbertPretrainer, batch_size: int, strategy: tf.distribute.Strategy
) -> tf.types.experimental.PolymorphicFunction:
    """Return a function of a whole batch that computes its rows' sums and mean-pooled outputs.

    The sums are float32 [B, len(SUMS)], the outputs float32 [B, H].
    """
    replicas = strategy.num_replicas_in_sync
    if batch_size % replicas:
        raise InputError(
            "the evaluation batch size must be a multiple of the number of replicas. "
            f"Received: {batch_size}, replicas: {replicas}."
        )

    rows = batch_size // replicas
    parts = num_parts(rows, devices.num_parallel_parts(strategy))
    like = tf.TensorSpec([rows // parts, len(SUMS)]), tf.TensorSpec([rows // parts, None])

    def of_replica(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        replica = tf.distribute.get_replica_context()

        def own(value: tf.Tensor) -> tf.Tensor:
            return tf.gather(split_batch(value, replicas), replica.replica_id_in_sync_group)

        split = split_batch({name: own(value) for name, value in batch.items()}, parts)
        results = parallel_parts(
            lambda part: of_part({name: value[part] for name, value in split.items()}),
            parts,
            like,
        )
        sums, pooled = (tf.concat(each, 0) for each in zip(*results, strict=True))
        return replica.all_gather(sums, 0), replica.all_gather(pooled, 0)

    def of_part(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        outputs = model({name: batch[name] for name in MODEL_INPUTS})
        mask = tf.cast(batch["input_mask"], tf.float32)[:, :, None]  # [B, S, 1]
        # Not a product with the mask: outputs at padding are undefined and may be NaN.
        real = tf.where(mask > 0, outputs["sequence_output"], 0.0)
        pooled = tf.reduce_sum(real, axis=1) / tf.reduce_sum(mask, axis=1)
        sums = pretraining_sums(outputs, batch, by_row=True)
        return tf.stack(list(sums.values()), 1), pooled

    @tf.function(autograph=False)
    def forward(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, ...]:
        results = strategy.run(of_replica, args=(batch,))
        return tuple(strategy.experimental_local_results(value)[0] for value in results)

    return forward


def _lengths(batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return the numbers of positions of the two segments, float32 [B, 2]."""
    real, second = tf.reduce_sum(batch["input_mask"], 1), tf.reduce_sum(batch["input_type_ids"], 1)
    return tf.cast(tf.stack([real - second, second], 1), tf.float32)


def _feasible_pairs(manifest: Manifest) -> tuple[list[str], list[str]]:
    """Return the pairs that the records support, and notes on the unsupported ones."""
    pairs, notes = [], []
    for pair in PAIRS:
        try:
            check_objective(manifest, Objective(pair))
            pairs.append(pair)
        except ConfigError as error:
            notes.append(f"no {pair.upper()} pairs: {error}")
    if manifest.layout != COMPACT:
        notes.append("no probe: these records do not identify their documents.")
    return pairs, notes


def _chance(manifest: Manifest) -> float:
    """Return the share of the most frequent pair label.

    It is 0.5 for compact records, whose labels are drawn; other layouts store their labels.
    """
    if manifest.layout == COMPACT or not manifest.counts.sequences_of_label_1:
        return 0.5
    share = manifest.counts.sequences_of_label_1 / manifest.counts.sequences
    return max(share, 1 - share)


def error_over_documents(correct: np.ndarray, count: np.ndarray, documents: np.ndarray) -> float:
    """Return the standard error of sum(correct) / sum(count) for a sample of documents.

    It is that of a ratio of sums over clusters, sqrt(D / (D - 1) sum_d e_d^2) / sum(count) with
    e_d = correct_d - share count_d (Cochran, Sampling Techniques, section 6.5): predictions in one
    document may go right or wrong together. 0 for fewer than two documents.

    Args:
      correct: float [N], the number of correct predictions in each row.
      count: float [N], the number of predictions in each row.
      documents: int [N], the document of each row.
    """
    rows = count > 0
    _, index = np.unique(documents[rows], return_inverse=True)
    right, total = (np.bincount(index, each[rows]) for each in (correct, count))
    if len(total) < 2:
        return 0.0
    residuals = right - right.sum() / total.sum() * total
    return math.sqrt(len(total) / (len(total) - 1) * (residuals**2).sum()) / float(total.sum())


def _figures(
    name: str, share: float, count: float, error: float, chance: float | None = None
) -> dict[str, float | str]:
    """Return an accuracy with its standard error, count and, if `chance` is given, verdict."""
    kind, what = name.split("/")
    key = f"{kind}_{what}" if kind in PROBES else what
    figures: dict[str, float | str] = {
        name: share,
        f"standard_error/{key}": error,
        f"count/{key}": count,
    }
    if chance is not None:
        figures[f"verdict/{key}"] = above_chance(share, count, chance)
    return figures


def above_chance(accuracy: float, count: float, chance: float = 0.5) -> str:
    """Return a verdict on whether an accuracy is over two standard errors above chance."""
    if count < MIN_EXAMPLES:
        return "too few pairs to judge"
    distance = (accuracy - chance) / math.sqrt(chance * (1 - chance) / count)
    verdict = "above chance" if distance > 2 else "not above chance"
    return f"{verdict} ({distance:+.1f} standard errors from {100 * chance:.0f} %)"
