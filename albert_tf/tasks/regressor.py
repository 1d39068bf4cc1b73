"""Regression: a number for a text or a pair of texts, such as how alike two sentences are."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.layers import common
from albert_tf.tasks.classifier import TextTask
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.features import Features
from albert_tf.tasks.task_model import TaskModel, head_dense


@dataclasses.dataclass(frozen=True)
class RegressorTask(TextTask):
    """The `task` section of a regressor's config.json."""

    kind: str = "regressor"


class SequenceRegressor(TaskModel):
    """pooled_output -> dropout -> dense, trained with the squared error.

    Inputs: the encoder's dict of int32 [B, S]. Output: float32 [B].
    """

    def __init__(
        self, encoder: tf_keras.layers.Layer, task: RegressorTask, name: str = "regressor"
    ) -> None:
        super().__init__(encoder, task, name)
        self.head = head_dense(1, "head")

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        outputs, key = self.encode(inputs, training)
        return self.head(common.dropout(outputs["pooled_output"], self.task.dropout, key))[:, 0]

    def losses_of_fit(self) -> tf_keras.losses.Loss:
        return tf_keras.losses.MeanSquaredError()


def decode_scores(
    scores: np.ndarray, features: Features, examples: Sequence[TextExample], task: RegressorTask
) -> list[dict[str, Any]]:
    """`score` of each example."""
    return [{"score": float(score)} for score in scores]


def average_scores(members: Sequence[np.ndarray]) -> np.ndarray:
    """The mean of the members' scores [N]."""
    return np.mean(members, axis=0)
