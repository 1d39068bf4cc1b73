"""What the encoder and the pretrainer have in common as Keras models."""

import os
from collections.abc import Mapping
from typing import Any, Self

import tf_keras

from albert_tf.models.checkpoints import tracked_parts
from albert_tf.models.config import PRESETS, AlbertConfig
from albert_tf.models.layers.configured import ConfigMixin
from albert_tf.runtime import pretrained
from albert_tf.runtime.errors import ConfigError


class ConfiguredModel(ConfigMixin, tf_keras.Model):
    """A model that Keras can save and make again, and that has the weights of a path or new ones.

    Args:
      unroll: see `SharedStack`; without, `encoder_outputs` is the last layer alone.
    """

    def __init__(self, config: AlbertConfig, unroll: bool = True, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.unroll = unroll

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"unroll": self.unroll, "frozen": frozen_layers(self)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: object = None) -> Self:
        """The inverse of `get_config`, with new weights."""
        values = dict(config)
        frozen = values.pop("frozen")
        model = super().from_config(values).create_weights()
        freeze_layers(model, frozen)
        return model

    def build_from_config(self, config: Mapping[str, Any]) -> None:
        self.create_weights()

    @classmethod
    def from_preset(cls, preset: str, **kwargs: Any) -> Self:
        """A trained model, or that of a published shape with new weights.

        Args:
          preset: a path, or the name of a shipped model such as `albert-mini-en`, for its weights;
            or a published shape such as `albert-base-v2`. A path that exists goes before a name.
          kwargs: the constructor's, such as `dtype="mixed_bfloat16"`.
        """
        if os.path.exists(preset) or preset in pretrained.names():
            return cls.load(preset, **kwargs)
        if preset not in PRESETS:
            raise ConfigError(
                f"`preset` must be a folder (working folder {os.getcwd()}) or one of "
                f"{', '.join([*pretrained.names(), *PRESETS])}. Received: {preset!r}."
            )
        return cls(AlbertConfig.from_preset(preset), **kwargs).create_weights()

    @classmethod
    def load(cls, path: str, **kwargs: Any) -> Self:
        """The model with the weights of a path."""
        raise NotImplementedError

    def create_weights(self) -> Self:
        """Creates every weight by one symbolic call; returns self."""
        raise NotImplementedError


def frozen_layers(model: tf_keras.Model) -> list[str]:
    """Paths of the layers inside `model` that are not trainable."""
    return [path for path, layer in _layers(model) if not layer.trainable]


def freeze_layers(model: tf_keras.Model, frozen: list[str]) -> None:
    """Makes the layers at these paths, and no others inside `model`, not trainable."""
    if frozen:
        for path, layer in _layers(model):  # from the outermost, which sets those in it too
            layer.trainable = path not in frozen


def _layers(model: tf_keras.Model) -> list[tuple[str, tf_keras.layers.Layer]]:
    parts = tracked_parts(model)
    return [(path, part) for path, part in parts if isinstance(part, tf_keras.layers.Layer)]
