"""One encoder block: an attention sub-layer followed by a feed-forward sub-layer."""

from collections.abc import Mapping
from typing import Any, Self

import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.models.layers import common, tpu
from albert_tf.models.layers.attention import AttentionWeights, JoinedWeights, SelfAttention
from albert_tf.models.layers.configured import ConfigMixin
from albert_tf.models.layers.feed_forward import FeedForward, FeedForwardWeights
from albert_tf.models.layers.packing import Packing


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
        key: common.DropoutKey | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """Apply the layer; see the class for shapes."""
        weights = self.attention.weight_tensors(), self.feed_forward.weight_tensors()
        return tpu.twins(self.compute(*weights, x, mask, key, training)).residual

    def compute(
        self,
        attention: AttentionWeights | JoinedWeights,
        feed_forward: FeedForwardWeights,
        x: common.Hidden,
        mask: tf.Tensor,
        key: common.DropoutKey | None,
        training: bool,
        packing: Packing | None = None,
        num_queries: int | tf.Tensor | None = None,
    ) -> common.Hidden:
        """Apply the block as a pure function of tensors; see `SelfAttention.compute`."""
        own = common.fold_in(key, 0)
        x = self.attention.compute(attention, x, mask, own, training, packing, num_queries)
        return self.feed_forward.compute(feed_forward, x, common.fold_in(key, 1), training)
