"""The losses as sums and counts, divided only once, after the sum over replicas."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from albert_tf.models.kernels.interface import cross_entropy
from data.objectives.objective import Objective


def pretraining_sums(
    objectives: Sequence[Objective],
    outputs: Mapping[str, tf.Tensor],
    batch: Mapping[str, tf.Tensor],
) -> dict[str, tf.Tensor]:
    """Return this replica's `sums` of all objectives, float32 scalars.

    They are sums of cross-entropies, of correct predictions and of weights, over the logits of each
    objective's head, such as `mlm_logits` [B, P, V]. The first two are taken from `mlm_sums` if the
    model returns these instead of the logits.
    """
    return {
        name: value
        for objective in objectives
        for name, value in zip(objective.sums, _sums(objective, outputs, batch), strict=True)
    }


def losses_and_hits(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return cross-entropies, and 1 where the prediction is correct, float32 like `labels`.

    `logits` have one axis more than `labels`, the last.
    """
    flat = tf.reshape(logits, [-1, logits.shape[-1]])
    losses, is_right = cross_entropy(flat, tf.reshape(labels, [-1]))
    shape = tf.shape(labels)
    return tf.reshape(losses, shape), tf.reshape(tf.cast(is_right, tf.float32), shape)


def _sums(
    objective: Objective,
    outputs: Mapping[str, tf.Tensor],
    batch: Mapping[str, tf.Tensor],
) -> tuple[tf.Tensor, ...]:
    weights, computed = batch[objective.weights], outputs.get(f"{objective.head.name}_sums")
    if computed is not None:
        return (*tf.unstack(computed), tf.reduce_sum(weights))
    losses, hits = losses_and_hits(outputs[objective.head.logits], batch[objective.labels])
    return tuple(tf.reduce_sum(values) for values in (losses * weights, hits * weights, weights))


def means(objectives: Sequence[Objective], sums: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of each objective, omitting those with a count of 0."""
    result: dict[str, float] = {}
    for objective in objectives:
        *totals, count = (sums[name] for name in objective.sums)
        if count:
            result |= {n: t / count for n, t in zip(objective.metrics, totals, strict=True)}
    return result
