"""How deep in a model a weight is, and an optimizer whose learning rate follows it."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.encoder import AlbertEncoder
from albert_tf.errors import ConfigError
from albert_tf.optimization import AdamW
from albert_tf.tasks.task_model import TaskModel


def layers_of(model: TaskModel) -> list[list[tf_keras.layers.Layer]]:
    """The model's layers from the lowest: embeddings, each encoder layer, pooler and head.

    Weights that several layers share are listed with the highest that uses them.
    """
    encoder = model.encoder
    if not isinstance(encoder, AlbertEncoder):
        raise ConfigError(
            "`training.layer_decay` and `training.frozen` need an encoder of our own, not an "
            "exported one: pass the run or the converted folder that it was exported from."
        )
    stack, levels = encoder.stack, [[encoder.embeddings]]
    for number, layer in enumerate(stack.plan):
        above = stack.plan[number + 1 :]
        own = []
        if layer.attention not in [other.attention for other in above]:
            own.append(stack.attentions[layer.attention])
        if layer.ffn not in [other.ffn for other in above]:
            own.append(stack.feed_forwards[layer.ffn])
        levels.append(own)
    return levels


def freeze(model: TaskModel, frozen: int) -> None:
    """Takes the lowest layers out of training."""
    levels = layers_of(model)
    if frozen > len(levels):
        raise ConfigError(
            f"`training.frozen` must be at most {len(levels)}: the embeddings and "
            f"{len(levels) - 1} layers. Received: {frozen}."
        )
    for level in levels[:frozen]:
        for layer in level:
            layer.trainable = False


def rates_of(model: TaskModel, decay: float) -> dict[str, float]:
    """Name of each weight below the pooler -> the factor of its learning rate."""
    levels = layers_of(model)
    return {
        weight.name: decay ** (len(levels) - depth)
        for depth, level in enumerate(levels)
        for layer in level
        for weight in layer.weights
    }


class LayerwiseAdamW(AdamW):
    """AdamW with a factor of the learning rate for each weight (1 where none is named)."""

    def __init__(self, *args: Any, factors: Mapping[str, float], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.factors = dict(factors)

    def _direction(
        self, gradient: tf.Tensor, variable: tf.Variable, is_finite: tf.Tensor
    ) -> tf.Tensor:
        factor = self.factors.get(variable.name, 1.0)
        return factor * super()._direction(gradient, variable, is_finite)

    def get_config(self) -> dict[str, object]:
        return super().get_config() | {"factors": self.factors}
