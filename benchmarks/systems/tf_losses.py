"""The pretraining loss that a user of a TensorFlow peer computes from its logits."""

from collections.abc import Mapping

import tensorflow as tf


def pretraining_loss(
    mlm_logits: tf.Tensor, pair_logits: tf.Tensor, batch: Mapping[str, tf.Tensor]
) -> tf.Tensor:
    """Return mean MLM loss of [B, P, V] logits + mean pair loss of [B, 2] logits, in float32."""
    mlm = tf.nn.sparse_softmax_cross_entropy_with_logits(
        batch["masked_lm_ids"], tf.cast(mlm_logits, tf.float32)
    )
    pair = tf.nn.sparse_softmax_cross_entropy_with_logits(
        batch["pair_label"], tf.cast(pair_logits, tf.float32)
    )
    weights = batch["masked_lm_weights"]
    return tf.reduce_sum(mlm * weights) / tf.reduce_sum(weights) + tf.reduce_mean(pair)
