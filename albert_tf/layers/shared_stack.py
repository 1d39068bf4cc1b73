"""The stack of layers whose blocks share weights (paper section 3.1, Table 4)."""

import tensorflow as tf
import tf_keras

from albert_tf.config import AlbertConfig, sharing_plan
from albert_tf.layers import common
from albert_tf.layers.attention import SelfAttention
from albert_tf.layers.encoder_block import EncoderBlock
from albert_tf.layers.feed_forward import FeedForward


class SharedStack(tf_keras.layers.Layer):
    """`num_layers` applications of the blocks that `sharing_plan(config)` names.

    The stack owns each distinct sub-layer once; with `sharing="all"` and one group it is one block,
    called `num_layers` times. Dropout differs from layer to layer: the layer's number is folded in.

    Inputs: x [B, S, H]; mask [B, 1, 1, S]. Output: a list of `num_layers` tensors [B, S, H].
    """

    def __init__(self, config: AlbertConfig, name: str = "stack") -> None:
        super().__init__(name=name)
        self.plan = sharing_plan(config)
        attentions = 1 + max(layer.attention for layer in self.plan)
        feed_forwards = 1 + max(layer.ffn for layer in self.plan)
        self.attentions = [SelfAttention(config, f"attention_{i}") for i in range(attentions)]
        self.feed_forwards = [
            FeedForward(config, f"feed_forward_{i}") for i in range(feed_forwards)
        ]
        self.blocks = [
            EncoderBlock(self.attentions[a], self.feed_forwards[f], f"block_{a}_{f}")
            for a, f in dict.fromkeys(self.plan)
        ]

    def call(
        self, x: tf.Tensor, mask: tf.Tensor, key: common.DropoutKey | None = None
    ) -> list[tf.Tensor]:
        blocks = dict(zip(dict.fromkeys(self.plan), self.blocks, strict=True))
        outputs = []
        for number, layer in enumerate(self.plan):
            x = blocks[layer](x, mask, key=common.fold_in(key, number))
            outputs.append(x)
        return outputs
