"""One encoder block: an attention sub-layer followed by a feed-forward sub-layer."""

import tensorflow as tf
import tf_keras

from albert_tf.models.layers import common
from albert_tf.models.layers.attention import AttentionWeights, SelfAttention
from albert_tf.models.layers.feed_forward import FeedForward, FeedForwardWeights


class EncoderBlock(tf_keras.layers.Layer):
    """feed_forward(attention(x)) over two sub-layers that it is given and may share with others.

    Inputs: x [B, S, H]; mask [B, 1, 1, S] as `additive_mask` makes it. Output: [B, S, H].
    """

    def __init__(
        self, attention: SelfAttention, feed_forward: FeedForward, name: str = "block"
    ) -> None:
        super().__init__(name=name)
        self.attention = attention
        self.feed_forward = feed_forward

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
