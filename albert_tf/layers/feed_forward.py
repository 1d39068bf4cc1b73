"""The feed-forward sub-layer with its residual and LayerNorm."""

import tensorflow as tf
import tf_keras

from albert_tf.config import AlbertConfig
from albert_tf.layers import common


class FeedForward(tf_keras.layers.Layer):
    """LayerNorm(x + dropout(W_2 activation(W_1 x))), [B, S, H] -> [B, S, H], inner width F."""

    def __init__(self, config: AlbertConfig, name: str = "feed_forward") -> None:
        super().__init__(name=name)
        self.config = config
        self.intermediate = common.dense(config, config.intermediate_size, "intermediate")
        self.output_dense = common.dense(config, config.hidden_size, "output")
        self.layer_norm = common.layer_norm(config.layer_norm_eps, "layer_norm")

    def call(self, x: tf.Tensor, key: common.DropoutKey | None = None) -> tf.Tensor:
        inner = common.activation(self.config.activation)(self.intermediate(x))  # [B, S, F]
        out = common.dropout(self.output_dense(inner), self.config.hidden_dropout, key)
        return tf.cast(self.layer_norm(x + out), self.compute_dtype)
