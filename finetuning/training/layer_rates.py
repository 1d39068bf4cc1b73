"""The depth of each weight in a model: what is frozen, and learning rates by depth."""

import tf_keras

from albert_tf.runtime.errors import ConfigError
from albert_tf.tasks.task_model import TaskModel


def layers_of(model: TaskModel) -> list[list[tf_keras.layers.Layer]]:
    """Return the model's layers from the lowest: the embeddings, then each encoder layer.

    Weights that several layers share are listed with the highest one.
    """
    encoder = model.encoder
    stack, levels = encoder.stack, [[encoder.embeddings]]
    for number, layer in enumerate(stack.plan):
        above = stack.plan[number + 1 :]
        level = []
        if layer.attention not in [other.attention for other in above]:
            level.append(stack.attentions[layer.attention])
        if layer.ffn not in [other.ffn for other in above]:
            level.append(stack.feed_forwards[layer.ffn])
        levels.append(level)
    return levels


def freeze(model: TaskModel, frozen: int) -> None:
    """Exclude the lowest layers from training.

    Raises:
      ConfigError: the model has fewer layers.
    """
    levels = layers_of(model)
    if frozen > len(levels):
        raise ConfigError(
            f"`training.frozen` must be at most {len(levels)}: the embeddings and "
            f"{len(levels) - 1} layers. Received: {frozen}."
        )
    for level in levels[:frozen]:
        for layer in level:
            layer.trainable = False


def factors_of(model: TaskModel, decay: float) -> list[float]:
    """Return the learning-rate factor of each of `model.trainable_variables`.

    It is 1 from the pooler upwards.
    """
    levels = layers_of(model)
    depths = {
        id(weight): depth
        for depth, level in enumerate(levels)
        for layer in level
        for weight in layer.weights
    }
    top = len(levels)
    return [decay ** (top - depths.get(id(weight), top)) for weight in model.trainable_variables]
