"""The two losses as sums and counts, divided only once, after the sum over replicas."""

from collections.abc import Mapping

import tensorflow as tf

from albert_tf.models.layers import fused

SUMS = ("mlm_loss", "mlm_correct", "mlm_count", "pair_loss", "pair_correct", "pair_count")


def pretraining_sums(
    outputs: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor], by_row: bool = False
) -> dict[str, tf.Tensor]:
    """Return this replica's sums named as in `SUMS`, float32 scalars or, with `by_row`, [B].

    They are sums of cross-entropies, of correct predictions and of weights. Those of MLM are over
    `mlm_logits` [B, P, V] at the real prediction slots, or taken from `mlm_sums` if present; those
    of pairs are over `pair_logits` [B, 2]. `mlm_sums` cannot be divided by rows.
    """
    if "mlm_sums" in outputs:
        mlm = (*tf.unstack(outputs["mlm_sums"]), tf.reduce_sum(batch["masked_lm_weights"]))
    else:
        labels, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]
        mlm = _sums(outputs["mlm_logits"], labels, weights, by_row)
    pair = _sums(outputs["pair_logits"], batch["pair_label"], batch["pair_weight"], by_row)
    return dict(zip(SUMS, (*mlm, *pair), strict=True))


def _sums(
    logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, by_row: bool
) -> tuple[tf.Tensor, ...]:
    flat = tf.reshape(logits, [-1, logits.shape[-1]])
    losses, is_right = fused.cross_entropy(flat, tf.reshape(labels, [-1]))
    weights = tf.reshape(weights, [-1])
    summed = losses * weights, tf.cast(is_right, tf.float32) * weights, weights
    if by_row:
        summed = tuple(tf.reshape(each, [tf.shape(labels)[0], -1]) for each in summed)
    return tuple(tf.reduce_sum(each, -1) for each in summed)


def means(sums: Mapping[str, float]) -> dict[str, float]:
    """Return loss/x and accuracy/x for x in mlm and pair, omitting those with a count of 0."""
    result = {}
    for name in ("mlm", "pair"):
        if count := sums[f"{name}_count"]:
            result[f"loss/{name}"] = sums[f"{name}_loss"] / count
            result[f"accuracy/{name}"] = sums[f"{name}_correct"] / count
    return result
