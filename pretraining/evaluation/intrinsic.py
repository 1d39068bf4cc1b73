"""Held-out losses and accuracies of a pretrainer, with baselines and standard errors."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime import devices
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.training.step import num_parts, parallel_parts, split_batch
from data.objectives.pair_objective import NoPairs, PairObjective
from data.objectives.registry import OBJECTIVES
from data.pipeline.batches import Records
from data.records.manifest import COMPACT, Manifest
from pretraining.evaluation.estimates import Estimate, above_chance, estimate
from pretraining.evaluation.piece_kinds import KINDS, kinds_of, position_ranges
from pretraining.evaluation.probe import Halves, Probe, probe_batches
from pretraining.loop.config import PretrainConfig
from pretraining.loop.losses import losses_and_hits
from pretraining.loop.train_step import MODEL_INPUTS

PROBES = ("probe", "lengths")  # on the model's outputs, and on nothing but the segments' lengths
PAIR = "pair"

Batch = Mapping[str, tf.Tensor]


class Evaluator:
    """A repeatable evaluation of a model on held-out records, with one traced function.

    Masked LM is evaluated on the pairs of the model's training objective. The pair head is then
    evaluated on the pairs of every objective with such a head, and a probe
    (`pretraining.evaluation.probe`) on those of every objective (paper section 4.6). Masks and
    pairs are the same in every run.

    Under a strategy, the replicas share each batch and every worker returns the same metrics.

    Args:
      model: the model to evaluate.
      records: the held-out records.
      config: its `objective` is the training objective; its `masking` makes the masks.
      batch_size: over all replicas.
      trained_only: skips the probe and the objective that the model was not trained with. A run is
        then one pass over the records (with partners, for NSP, after one that reads them), fast
        enough to be repeated during training.
      by_kind: adds the figures of each kind of predicted pieces.
      strategy: by default the current one.
      tokenizer: that of the records; adds `bits_per_character/mlm`.
    """

    def __init__(
        self,
        model: AlbertPretrainer,
        records: Records,
        config: PretrainConfig,
        batch_size: int,
        *,
        trained_only: bool = False,
        by_kind: bool = True,
        strategy: tf.distribute.Strategy | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._manifest, self._trained_with = records.manifest, config.objective.of_pairs
        self._probes = not trained_only and records.manifest.layout == COMPACT
        feasible, notes = _feasible(records.manifest)
        self._notes = [] if trained_only else notes
        self._of_mlm = self._trained_with
        if self._trained_with.is_trained and self._trained_with not in feasible:
            self._of_mlm = NoPairs()
            self._notes.append("MLM is not evaluated on the pairs that the model was trained with.")
        objectives = [self._of_mlm, *([] if trained_only else feasible)]
        # Finding the halves reads all records. A partner is drawn from the record's own half.
        needs_halves = self._probes or self._of_mlm.has_partners
        is_compact = records.manifest.layout == COMPACT
        halves = Halves.of_pairs(records) if is_compact and needs_halves else None
        self._batches = {
            objective: probe_batches(records, objective, config.masking, batch_size, halves)
            for objective in objectives
        }
        self._by_kind = by_kind
        ranges = position_ranges(records.manifest.seq_length) if by_kind else {}
        self._rows = (*KINDS, *ranges)
        self._kinds = kinds_of(records.manifest.special_ids[-1], list(ranges.values()))
        strategy = strategy or tf.distribute.get_strategy()
        logits = self._trained_with.head.logits
        self._forward = _forward(model, self._kinds, len(self._rows), logits, batch_size, strategy)

    @property
    def num_sequences(self) -> int:
        """The number of sequences that a run reads, over all passes."""
        return len(self._batches) * self._manifest.num_records

    def run(self, advance: Callable[[int], None] = lambda count: None) -> dict[str, Any]:
        """Return the metrics, and call `advance` with the number of sequences of each batch done.

        For x = mlm and the name of each objective of pairs: `loss/x`, `accuracy/x`,
        `standard_error/x` (over documents), `count/x`; for pairs also `verdict/x`, and for the
        probe `probe/x`, `standard_error/probe_x`, `count/probe_x` and `verdict/probe_x`; the same
        under `lengths` for a probe that sees only the number of pieces in each segment.
        Losses are in nats per masked piece or pair. `bits_per_character/mlm`, which needs the
        tokenizer, is the MLM loss in bits divided by the number of characters of the masked pieces,
        which makes vocabularies comparable, unless many pieces are unknown: they are easy to
        predict, and count as one character each. `baseline/mlm` is the accuracy of always
        predicting the most frequent piece, `baseline/x` that of the most frequent
        label of an objective of pairs.
        `trained_with` is the name of the training objective.

        With `by_kind`, the masked LM is also divided by KINDS of predicted pieces: for k in hidden,
        replaced and visible, `k/loss`, `k/accuracy`, `k/standard_error`, `k/count` and
        `k/bits_per_character`. In sequences of more than 128 pieces, so are the hidden ones by
        `position_ranges`: k is then `hidden 0-127`, `hidden 128-255` and so on.

        `loss/pair` and the other keys in /pair (or another head's name), as in metrics.jsonl,
        repeat those of `trained_with`. Metrics that cannot be computed are absent, and `notes`
        gives the reasons.
        """
        trained = self._trained_with
        result: dict[str, Any] = {"trained_with": trained.name, "notes": list(self._notes)}
        for objective in self._batches:
            name, chance = objective.name, _chance(self._manifest, objective)
            rows, documents, targets, probes = self._pass(objective, advance)
            if objective.is_trained and chance is not None:
                result[f"baseline/{name}"] = chance
            if objective is self._of_mlm:
                of_all = targets[: len(KINDS)].sum(0)
                result["baseline/mlm"] = float(of_all.max() / of_all.sum())
                result |= self._mlm_figures(rows, documents, targets)
            if rows[PAIR].any() and trained.is_trained and objective.head == trained.head:
                loss, correct, count = rows[PAIR].T
                result[f"loss/{name}"] = float(loss.sum() / count.sum())
                score = estimate(correct, count, documents)
                result |= _figures(f"accuracy/{name}", score, chance)
            for kind, score in probes.items():
                result |= _figures(f"{kind}/{name}", score, chance)
            if self._probes and objective.is_trained and "probe" not in probes:
                result["notes"].append(
                    f"no {name.upper()} probe: too few pairs or documents, or outputs that are not "
                    "finite."
                )
        for kind in ("baseline", "loss", "accuracy", "standard_error", "count", "verdict"):
            if f"{kind}/{trained.name}" in result:
                result[f"{kind}/{trained.head.name}"] = result[f"{kind}/{trained.name}"]
        return result

    def _mlm_figures(
        self, rows: dict[str, np.ndarray], documents: np.ndarray, targets: np.ndarray
    ) -> dict[str, Any]:
        """Return the figures of all predicted pieces and of each kind, from `_pass`."""
        loss, correct, count = np.sum([rows[kind] for kind in KINDS], 0).T
        figures: dict[str, Any] = {"loss/mlm": float(loss.sum() / count.sum())}
        if self._tokenizer:
            figures["bits_per_character/mlm"] = self._bits(loss, targets[: len(KINDS)].sum(0))
        figures |= _figures("accuracy/mlm", estimate(correct, count, documents))
        for kind, pieces in zip(self._rows, targets, strict=True):
            loss, correct, count = rows[kind].T
            if not (self._by_kind and count.any()):
                continue
            score = estimate(correct, count, documents)
            values = {"loss": float(loss.sum()) / score.count, "accuracy": score.share}
            values |= {"standard_error": score.error, "count": score.count}
            if self._tokenizer:
                values["bits_per_character"] = self._bits(loss, pieces)
            figures |= {f"{kind}/{name}": value for name, value in values.items()}
        return figures

    def _bits(self, loss: np.ndarray, pieces: np.ndarray) -> float:
        """Return losses [N] in bits per character of the predicted pieces, counts [V]."""
        assert self._tokenizer
        return float(loss.sum() / math.log(2) / (pieces @ self._tokenizer.num_characters))

    def _pass(
        self, objective: PairObjective, advance: Callable[[int], None]
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, dict[str, Estimate]]:
        """Read all records once.

        Return, for each of `self._rows` and PAIR, the sequences' sums of losses, of correct
        predictions and of predictions, float64 [N, 3]; their documents, int64 [N]; how often each
        piece is predicted, int64 [len(self._rows), V]; and the probes' scores.
        """
        rows, documents = [], []
        size = self._manifest.vocab_size
        targets: np.ndarray = np.zeros([len(self._rows), size], np.int64)
        probes = {kind: Probe() for kind in PROBES if self._probes and objective.is_trained}
        remaining = self._manifest.num_records
        for batch in self._batches[objective]:
            sums, features = self._forward(batch)
            rows.append(sums.numpy())
            documents.append(batch["document"].numpy())
            ids = batch["masked_lm_ids"].numpy()
            for number, is_kind in enumerate(np.moveaxis(self._kinds(batch).numpy() > 0, -1, 0)):
                targets[number] += np.bincount(ids[is_kind], minlength=size)
            for kind, probe in probes.items():
                probe.add(features if kind == "probe" else _lengths(batch), batch)
            advance(done := min(remaining, len(ids)))
            remaining -= done
        every = np.concatenate(rows).astype(np.float64)
        columns = dict(zip((*self._rows, PAIR), np.moveaxis(every, 1, 0), strict=True))
        scores = {kind: probe.score() for kind, probe in probes.items()}
        known = {kind: score for kind, score in scores.items() if score}
        return columns, np.concatenate(documents), targets, known


def _forward(
    model: AlbertPretrainer,
    kinds: Callable[[Batch], tf.Tensor],
    num_kinds: int,
    pair_logits: str,
    batch_size: int,
    strategy: tf.distribute.Strategy,
) -> tf.types.experimental.PolymorphicFunction:
    """Return a function of a whole batch that computes its rows' sums and mean-pooled outputs.

    The sums are float32 [B, num_kinds + 1, 3], those of `Evaluator._pass`; the outputs are float32
    [B, H].
    """
    replicas = strategy.num_replicas_in_sync
    if batch_size % replicas:
        raise InputError(
            "the evaluation batch size must be a multiple of the number of replicas. "
            f"Received: {batch_size}, replicas: {replicas}."
        )

    rows = batch_size // replicas
    parts = num_parts(rows, devices.num_parallel_parts(strategy))
    rows_of_part = rows // parts
    like = tf.TensorSpec([rows_of_part, num_kinds + 1, 3]), tf.TensorSpec([rows_of_part, None])

    def of_replica(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        replica = tf.distribute.get_replica_context()

        def of_this(value: tf.Tensor) -> tf.Tensor:
            return tf.gather(split_batch(value, replicas), replica.replica_id_in_sync_group)

        split = split_batch({name: of_this(value) for name, value in batch.items()}, parts)
        results = parallel_parts(
            lambda part: of_part({name: value[part] for name, value in split.items()}),
            parts,
            like,
        )
        sums, pooled = (tf.concat(values, 0) for values in zip(*results, strict=True))
        return replica.all_gather(sums, 0), replica.all_gather(pooled, 0)

    def of_part(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        outputs = model({name: batch[name] for name in MODEL_INPUTS})
        mask = tf.cast(batch["input_mask"], tf.float32)[:, :, None]  # [B, S, 1]
        # Not a product with the mask: outputs at padding are undefined and may be NaN.
        real = tf.where(mask > 0, outputs["sequence_output"], 0.0)
        pooled = tf.reduce_sum(real, axis=1) / tf.reduce_sum(mask, axis=1)
        losses, hits = losses_and_hits(outputs["mlm_logits"], batch["masked_lm_ids"])
        values = tf.stack([losses, hits, tf.ones_like(hits)], -1)  # [B, P, 3]
        mlm = tf.einsum("bpk,bpv->bkv", kinds(batch), values)
        # NaN for labels that the head does not have, which `run` does not use.
        losses, hits = losses_and_hits(outputs[pair_logits], batch["pair_label"])
        pair = tf.stack([losses, hits, tf.ones_like(hits)], -1) * batch["pair_weight"][:, None]
        return tf.concat([mlm, pair[:, None]], 1), pooled

    @tf.function(autograph=False)
    def forward(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, ...]:
        results = strategy.run(of_replica, args=(batch,))
        return tuple(strategy.experimental_local_results(value)[0] for value in results)

    return forward


def _lengths(batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return the numbers of positions of the two segments, float32 [B, 2]."""
    real, second = tf.reduce_sum(batch["input_mask"], 1), tf.reduce_sum(batch["input_type_ids"], 1)
    return tf.cast(tf.stack([real - second, second], 1), tf.float32)


def _feasible(manifest: Manifest) -> tuple[list[PairObjective], list[str]]:
    """Return the objectives that the records support, and notes on the unsupported ones."""
    feasible, notes = [], []
    for name, objective in OBJECTIVES.items():
        try:
            objective.check(manifest)
            feasible += [objective] if objective.is_trained else []
        except ConfigError as error:
            notes.append(f"no {name.upper()} pairs: {error}")
    if manifest.layout != COMPACT:
        notes.append("no probe: these records do not identify their documents.")
    return feasible, notes


def _chance(manifest: Manifest, objective: PairObjective) -> float | None:
    """Return the share of the most frequent label; None if it is unknown.

    The labels of compact records are drawn in equal shares; other layouts store theirs, and their
    manifest counts one of two.
    """
    if manifest.layout == COMPACT or not manifest.counts.sequences_of_label_1:
        return 1 / objective.num_classes
    if objective.num_classes > 2:
        return None
    share = manifest.counts.sequences_of_label_1 / manifest.counts.sequences
    return max(share, 1 - share)


def _figures(name: str, score: Estimate, chance: float | None = None) -> dict[str, float | str]:
    """Return an accuracy with its standard error, count and, if `chance` is given, verdict."""
    kind, what = name.split("/")
    key = f"{kind}_{what}" if kind in PROBES else what
    figures: dict[str, float | str] = {
        name: score.share,
        f"standard_error/{key}": score.error,
        f"count/{key}": score.count,
    }
    if chance is not None:
        figures[f"verdict/{key}"] = above_chance(score, chance)
    return figures
