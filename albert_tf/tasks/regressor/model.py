"""Regression: a number for a text or a pair of texts, such as the similarity of two sentences."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

import tensorflow as tf
import tf_keras

from albert_tf.models.layers import common
from albert_tf.runtime.bounds import FINITE, POSITIVE
from albert_tf.tasks.task_model import TaskModel, head_dense
from albert_tf.tasks.texts import TextSettings


@dataclasses.dataclass(frozen=True)
class RegressorSettings(TextSettings):
    """The `task` section of a regressor's config.json.

    For a user's own labels, `center` and `scale` are their mean and standard deviation, so that
    prices train as well as values in [0, 1].

    Attributes:
      center: the score for a head output of 0.
      scale: the difference in score per unit of the head's output.
    """

    HEAD = ("center", "scale")
    FROM_DATA = ("center", "scale", "pair")

    center: Annotated[float, FINITE] = 0.0
    scale: Annotated[float, POSITIVE] = 1.0
    kind: str = "regressor"


@tf_keras.saving.register_keras_serializable("albert_tf")
class SequenceRegressor(TaskModel):
    """A regressor: pooled_output -> dropout -> dense, trained with the squared error.

    Inputs: the encoder's dict of int32 [B, S]. Output: float32 [B], in the unit of the labels.
    """

    task_class = RegressorSettings
    task: RegressorSettings

    def new_head(self) -> tf_keras.layers.Layer:
        """Return the dense layer of the values."""
        return head_dense(1, "head")

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """Return the predicted values, float32 [B]."""
        outputs, key = self.encode(inputs, training, pooled_only=True)
        return self.score(common.dropout(outputs["pooled_output"], self.task.dropout, key))

    def score(self, pooled: tf.Tensor) -> tf.Tensor:
        """Apply the head to pooled outputs: float32 [B, H] -> [B]."""
        return self.task.center + self.task.scale * self.head(pooled)[:, 0]

    def training_losses(self) -> tf_keras.losses.Loss:
        """Return the argument of `compile(loss=...)`."""
        return SquaredError(self.task.scale)


@tf_keras.saving.register_keras_serializable("albert_tf")
class SquaredError(tf_keras.losses.Loss):
    """The loss ((target - output) / scale)^2, of [B]."""

    def __init__(self, scale: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale = scale

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return super().get_config() | {"scale": self.scale}

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each example, [B]."""
        targets = tf.cast(tf.reshape(y_true, tf.shape(y_pred)), tf.float32)
        return tf.square((targets - y_pred) / self.scale)
