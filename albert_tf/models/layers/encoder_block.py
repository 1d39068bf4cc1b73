"""One encoder block: an attention sub-layer followed by a feed-forward sub-layer."""

from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.models.layers import common
from albert_tf.models.layers.attention import AttentionWeights, SelfAttention
from albert_tf.models.layers.configured import Configured
from albert_tf.models.layers.feed_forward import FeedForward, FeedForwardWeights


@tf_keras.saving.register_keras_serializable("albert_tf")
class EncoderBlock(Configured, tf_keras.layers.Layer):
    """feed_forward(attention(x)).

    Inputs: x [B, S, H]; mask [B, 1, 1, S] as `additive_mask` makes it. Output: [B, S, H].

    Args:
      attention, feed_forward: the sub-layers, which other blocks may share; by default its own.
    """

    def __init__(
        self,
        config: AlbertConfig,
        attention: SelfAttention | None = None,
        feed_forward: FeedForward | None = None,
        name: str = "block",
        **kwargs: Any,
    ) -> None:
        super().__init__(config, name=name, **kwargs)
        self.attention = attention or SelfAttention(config, dtype=self.dtype_policy)
        self.feed_forward = feed_forward or FeedForward(config, dtype=self.dtype_policy)

    def build(self, input_shape: object) -> None:
        common.build((self.attention, self.feed_forward), self.config.hidden_size)
        super().build(input_shape)

    def call(
        self,
        x: tf.Tensor,
        mask: tf.Tensor,
        key: common.DropoutKey | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        weights = self.attention.weights_now(), self.feed_forward.weights_now()
        return self.compute(*weights, x, mask, key, training)

    def compute(
        self,
        attention: AttentionWeights,
        feed_forward: FeedForwardWeights,
        x: tf.Tensor,
        mask: tf.Tensor,
        key: common.DropoutKey | None,
        training: bool,
    ) -> tf.Tensor:
        """The block as a function of tensors alone."""
        x = self.attention.compute(attention, x, mask, common.fold_in(key, 0), training)
        return self.feed_forward.compute(feed_forward, x, common.fold_in(key, 1), training)
