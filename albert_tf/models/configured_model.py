"""What the encoder and the pretrainer have in common as Keras models."""

import os
from collections.abc import Mapping
from typing import Any, Self

import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.models.layers.configured import Configured


class ConfiguredModel(Configured, tf_keras.Model):
    """A model that Keras can save and make again, and that has the weights of a path or new ones.

    Args:
      unroll: see `SharedStack`; without, `encoder_outputs` is the last layer alone.
    """

    def __init__(self, config: AlbertConfig, unroll: bool = True, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.unroll = unroll

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"unroll": self.unroll}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: object = None) -> Self:
        """The inverse of `get_config`, with new weights."""
        return super().from_config(config).create_weights()

    def build_from_config(self, config: Mapping[str, Any]) -> None:
        self.create_weights()

    @classmethod
    def from_preset(cls, preset: str, /, **kwargs: Any) -> Self:
        """The model of a published shape, such as `albert-base-v2`, with new weights.

        Where `preset` is a path that exists, `load` takes it: a path goes before a name.

        Args:
          kwargs: the constructor's, such as `dtype="mixed_bfloat16"`.
        """
        if os.path.exists(preset):
            return cls.load(preset, **kwargs)
        return cls(AlbertConfig.from_preset(preset), **kwargs).create_weights()

    @classmethod
    def load(cls, path: str, **kwargs: Any) -> Self:
        """The model with the weights of a path."""
        raise NotImplementedError

    def create_weights(self) -> Self:
        """Creates every weight by one call on symbolic inputs; returns self."""
        raise NotImplementedError
