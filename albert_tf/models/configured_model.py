"""The common base class of the encoder and the pretrainer as Keras models."""

import os
from collections.abc import Mapping
from typing import Any, Self

import tensorflow as tf
import tf_keras

from albert_tf.models.checkpoints import tracked_parts, weights_of
from albert_tf.models.config import AlbertConfig
from albert_tf.models.kernels.choice import choose
from albert_tf.models.kernels.interface import Kernels
from albert_tf.models.layers import common
from albert_tf.models.layers.configured import ConfigMixin
from albert_tf.models.presets import PRESETS
from albert_tf.runtime import pretrained, settings
from albert_tf.runtime.errors import ConfigError
from albert_tf.runtime.files import paths
from albert_tf.runtime.forks import require_unforked

Outputs = dict[str, tf.Tensor | list[tf.Tensor]]


class ConfiguredModel(ConfigMixin, tf_keras.Model):
    """A model that Keras can save and rebuild, with weights loaded from a path or new ones.

    A call chooses the operations for its device, and `run` passes them down. Keras sees only plain
    arguments, without which it cannot save a model.

    Args:
      config: the configuration of the model.
      unroll: see `SharedStack`; if False, `encoder_outputs` holds only the last layer.
      kwargs: passed to `tf_keras.Model`.
    """

    def __init__(self, config: AlbertConfig, unroll: bool = True, **kwargs: Any) -> None:
        # Keras would cast ids that are given as floats, as by Input without a dtype, to bfloat16.
        super().__init__(config, **{"autocast": False} | kwargs)
        self.unroll = unroll

    def layers_in_order(self) -> tuple[tf_keras.layers.Layer, ...]:
        """Return the layers that have variables, in the order in which these are created."""
        raise NotImplementedError

    def build(self, input_shape: object) -> None:
        """Create the variables, so that the layers can compute with any operations."""
        common.build(self.layers_in_order(), self.config.hidden_size)
        self.built = True

    @tf.autograph.experimental.do_not_convert  # nothing to convert, but trying takes seconds
    def call(
        self,
        inputs: Mapping[str, tf.Tensor],
        training: bool = False,
        dropout_key: common.DropoutKey | None = None,
        kernels: str = "auto",
        **options: Any,
    ) -> Outputs:
        """Return the result of `run` with the operations for this device; see the class."""
        require_unforked()
        ops = choose(training, kernels, self.unroll)
        return self.run(ops, inputs, training, dropout_key, **options)

    def run(
        self,
        ops: Kernels,
        inputs: Mapping[str, tf.Tensor],
        training: bool,
        dropout_key: common.DropoutKey | None,
        **options: Any,
    ) -> Outputs:
        """Compute the outputs that the class describes with a set of operations."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor, and the paths of the frozen layers."""
        return super().get_config() | {"unroll": self.unroll, "frozen": frozen_layers(self)}

    def as_run(self) -> tuple[tf.train.Checkpoint, dict[str, Any]]:
        """Return what a run folder of this model holds: weights, and sections of config.json."""
        sections = {"model": settings.to_dict(self.config), "task": {"kind": "pretraining"}}
        return weights_of(self), sections

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: object = None) -> Self:
        """Build the model that `get_config` describes, with new weights."""
        values = dict(config)
        frozen = values.pop("frozen")
        model = super().from_config(values).create_weights()
        freeze_layers(model, frozen)
        return model

    def load_weights(self, *args: Any, **kwargs: Any) -> Any:
        """Load weights as Keras does, into weights that are created first if necessary."""
        self.create_weights()
        return super().load_weights(*args, **kwargs)

    def build_from_config(self, config: Mapping[str, Any]) -> None:
        """Create every weight; `config` is not needed."""
        self.create_weights()

    @classmethod
    def from_preset(cls, preset: str, **kwargs: Any) -> Self:
        """Return a trained model, or a model of a published shape with new weights.

        Args:
          preset: a path or the name of an included model, to load its weights; or a published shape
            such as `albert-base-v2`. An existing path takes precedence over a name.
          kwargs: arguments of the constructor, such as `dtype="mixed_bfloat16"`.

        Raises:
          ConfigError: `preset` is neither an existing path nor a name.
          InputError: the path has no model of this kind, or none that can be read.
        """
        preset = paths.expand(os.fspath(preset))
        if os.path.exists(preset) or preset in pretrained.names():
            return cls.load(preset, **kwargs)
        if preset not in PRESETS:
            raise ConfigError(
                f"`preset` must be a folder (working directory {os.getcwd()}) or one of "
                f"{', '.join([*pretrained.names(), *PRESETS])}. Received: {preset!r}."
            )
        return cls(AlbertConfig.from_preset(preset), **kwargs).create_weights()

    @classmethod
    def load(cls, path: str, **kwargs: Any) -> Self:
        """Return the model with the weights of a path."""
        raise NotImplementedError

    def create_weights(self) -> Self:
        """Create every weight by one symbolic call; return self."""
        raise NotImplementedError


def frozen_layers(model: tf_keras.Model) -> list[str]:
    """Return the paths of the layers inside `model` that are not trainable."""
    return [path for path, layer in _layers(model) if not layer.trainable]


def freeze_layers(model: tf_keras.Model, frozen: list[str]) -> None:
    """Make the layers inside `model` trainable, except those at the paths in `frozen`.

    If `frozen` is empty, nothing changes.
    """
    if frozen:
        for path, layer in _layers(model):  # outermost first, as a layer also sets its sub-layers
            layer.trainable = path not in frozen


def _layers(model: tf_keras.Model) -> list[tuple[str, tf_keras.layers.Layer]]:
    parts = tracked_parts(model)
    return [(path, part) for path, part in parts if isinstance(part, tf_keras.layers.Layer)]
