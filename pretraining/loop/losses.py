"""The two losses as sums and counts, divided only once, after the sum over replicas."""

from collections.abc import Mapping

import tensorflow as tf

from albert_tf.models.layers import fused

SUMS = ("mlm_loss", "mlm_correct", "mlm_count", "pair_loss", "pair_correct", "pair_count")


def pretraining_sums(
    outputs: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Return this replica's sums named as in `SUMS`, float32 scalars.

    They are sums of cross-entropies, of correct predictions and of weights. Those of MLM are over
    `mlm_logits` [B, P, V] at the real prediction slots, or taken from `mlm_sums` if present; those
    of pairs are over `pair_logits` [B, 2].
    """
    if "mlm_sums" in outputs:
        mlm = (*tf.unstack(outputs["mlm_sums"]), tf.reduce_sum(batch["masked_lm_weights"]))
    else:
        mlm = _sums(outputs["mlm_logits"], batch["masked_lm_ids"], batch["masked_lm_weights"])
    pair = _sums(outputs["pair_logits"], batch["pair_label"], batch["pair_weight"])
    return dict(zip(SUMS, (*mlm, *pair), strict=True))


def losses_and_hits(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return cross-entropies, and 1 where the prediction is correct, float32 like `labels`.

    `logits` have one axis more than `labels`, the last.
    """
    flat = tf.reshape(logits, [-1, logits.shape[-1]])
    losses, is_right = fused.cross_entropy(flat, tf.reshape(labels, [-1]))
    shape = tf.shape(labels)
    return tf.reshape(losses, shape), tf.reshape(tf.cast(is_right, tf.float32), shape)


def _sums(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, ...]:
    losses, hits = losses_and_hits(logits, labels)
    return tuple(tf.reduce_sum(each) for each in (losses * weights, hits * weights, weights))


def means(sums: Mapping[str, float]) -> dict[str, float]:
    """Return loss/x and accuracy/x for x in mlm and pair, omitting those with a count of 0."""
    result = {}
    for name in ("mlm", "pair"):
        if count := sums[f"{name}_count"]:
            result[f"loss/{name}"] = sums[f"{name}_loss"] / count
            result[f"accuracy/{name}"] = sums[f"{name}_correct"] / count
    return result
