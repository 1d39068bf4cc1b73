"""One encoder block: an attention sub-layer followed by a feed-forward sub-layer."""

from collections.abc import Mapping
from typing import Any, Self

import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.models.kernels.interface import PLAIN, Hidden, Kernels
from albert_tf.models.layers import common
from albert_tf.models.layers.attention import AttentionWeights, SelfAttention
from albert_tf.models.layers.configured import ConfigMixin
from albert_tf.models.layers.feed_forward import FeedForward, FeedForwardWeights


@tf_keras.saving.register_keras_serializable("albert_tf")
class EncoderBlock(ConfigMixin, tf_keras.layers.Layer):
    """The composition feed_forward(attention(x)).

    Inputs: x [B, S, H]; mask [B, 1, 1, S] from `additive_mask`. Output: [B, S, H].

    Other blocks may share the sub-layers `attention` and `feed_forward`. By default, the block
    creates its own.
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

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor, with the sub-layers serialized."""
        serialize = tf_keras.saving.serialize_keras_object
        return super().get_config() | {
            "attention": serialize(self.attention),
            "feed_forward": serialize(self.feed_forward),
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: object = None) -> Self:
        """Build the block that `get_config` describes, with new weights."""
        deserialize = tf_keras.saving.deserialize_keras_object
        parts = {name: deserialize(config[name]) for name in ("attention", "feed_forward")}
        return super().from_config({**config, **parts})

    def build(self, input_shape: object) -> None:
        """Create the variables."""
        common.build((self.attention, self.feed_forward), self.config.hidden_size)
        super().build(input_shape)

    def call(
        self,
        x: tf.Tensor,
        mask: tf.Tensor,
        dropout_key: common.DropoutKey | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """Apply the layer; see the class for shapes."""
        weights = self.attention.weight_tensors(PLAIN), self.feed_forward.weight_tensors()
        dropout_key = common.dropout_key_of(self.config, dropout_key, training)
        hidden = self.compute(PLAIN, *weights, PLAIN.enter(x), mask, dropout_key)
        return PLAIN.leave(hidden, common.shape_of(x)[:2])

    def compute(
        self,
        ops: Kernels,
        attention: AttentionWeights,
        feed_forward: FeedForwardWeights,
        x: Hidden,
        mask: tf.Tensor,
        dropout_key: common.DropoutKey | None = None,
        num_queries: int | tf.Tensor | None = None,
    ) -> Hidden:
        """Apply the block as a pure function of hidden states; see `SelfAttention.compute`."""
        first, second = (common.fold_in(dropout_key, number) for number in range(2))
        x = self.attention.compute(ops, attention, x, mask, first, num_queries)
        return self.feed_forward.compute(ops, feed_forward, x, second)

    def infer(
        self,
        attention: AttentionWeights,
        feed_forward: FeedForwardWeights,
        x: tf.Tensor,
        mask: tf.Tensor,
        num_queries: int | tf.Tensor | None,
    ) -> tf.Tensor:
        """Apply the block to [B, S, H] outside training: [B, num_queries, H]."""
        batch, length = common.shape_of(x)[:2]
        hidden = PLAIN.enter(x)
        hidden = self.compute(PLAIN, attention, feed_forward, hidden, mask, None, num_queries)
        return PLAIN.leave(hidden, [batch, length if num_queries is None else num_queries])
