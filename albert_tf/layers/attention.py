"""Multi-head self-attention with its residual and LayerNorm."""

import tensorflow as tf
import tf_keras

from albert_tf.config import AlbertConfig
from albert_tf.layers import common

MASKED = -10000.0  # added to the logits of padded positions; finite, so a fully padded row is too


class SelfAttention(tf_keras.layers.Layer):
    """LayerNorm(x + dropout(W_o softmax(q k^T / sqrt(D) + mask) v)), post-LN as in BERT.

    Inputs: x [B, S, H]; mask [B, 1, 1, S] float32, 0 where visible and -10000 where padded.
    Output: [B, S, H]. The softmax is in float32 under every precision policy.
    """

    def __init__(self, config: AlbertConfig, name: str = "attention") -> None:
        super().__init__(name=name)
        self.config = config
        self.query = common.dense(config, config.hidden_size, "query")
        self.key = common.dense(config, config.hidden_size, "key")
        self.value = common.dense(config, config.hidden_size, "value")
        self.output_dense = common.dense(config, config.hidden_size, "output")
        self.layer_norm = common.layer_norm(config.layer_norm_eps, "layer_norm")

    def call(
        self, x: tf.Tensor, mask: tf.Tensor, key: common.DropoutKey | None = None
    ) -> tf.Tensor:
        config = self.config
        scale = tf.cast(config.head_size**-0.5, self.compute_dtype)
        query = self._heads(self.query(x) * scale)
        logits = tf.matmul(query, self._heads(self.key(x)), transpose_b=True)  # [B, N, S, S]
        weights = tf.nn.softmax(tf.cast(logits, tf.float32) + mask)
        weights = tf.cast(weights, self.compute_dtype)
        weights = common.dropout(weights, config.attention_dropout, common.fold_in(key, 0))
        context = tf.matmul(weights, self._heads(self.value(x)))  # [B, N, S, D]
        context = tf.reshape(tf.transpose(context, [0, 2, 1, 3]), tf.shape(x))  # [B, S, H]
        out = self.output_dense(tf.ensure_shape(context, [None, None, config.hidden_size]))
        out = common.dropout(out, config.hidden_dropout, common.fold_in(key, 1))
        return tf.cast(self.layer_norm(x + out), self.compute_dtype)

    def _heads(self, x: tf.Tensor) -> tf.Tensor:
        shape = tf.shape(x)
        x = tf.reshape(x, [shape[0], shape[1], self.config.num_heads, self.config.head_size])
        return tf.transpose(x, [0, 2, 1, 3])  # [B, N, S, D]


def additive_mask(input_mask: tf.Tensor) -> tf.Tensor:
    """[B, S] of 1 and 0 -> float32 [B, 1, 1, S] to add to attention logits."""
    return (1.0 - tf.cast(input_mask, tf.float32)[:, None, None, :]) * MASKED
