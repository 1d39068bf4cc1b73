"""One encoder block: an attention sub-layer followed by a feed-forward sub-layer."""

import tensorflow as tf
import tf_keras

from albert_tf.layers import common
from albert_tf.layers.attention import SelfAttention
from albert_tf.layers.feed_forward import FeedForward


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
        self, x: tf.Tensor, mask: tf.Tensor, key: common.DropoutKey | None = None
    ) -> tf.Tensor:
        x = self.attention(x, mask, key=common.fold_in(key, 0))
        return self.feed_forward(x, key=common.fold_in(key, 1))
