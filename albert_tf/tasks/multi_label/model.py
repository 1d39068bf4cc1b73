"""Multi-label classification: any number of labels, or none, for a text or a pair of texts."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.models.layers import common
from albert_tf.runtime.arguments import is_index
from albert_tf.runtime.bounds import POSITIVE
from albert_tf.runtime.errors import ConfigError, InputError, shortened
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.task_model import TaskModel, head_dense
from albert_tf.tasks.task_settings import require_labels
from albert_tf.tasks.texts import TextSettings

THRESHOLD = 0.5  # of a label whose threshold was not chosen


@dataclasses.dataclass(frozen=True)
class MultiLabelSettings(TextSettings):
    """The `task` section of a multi-label classifier's config.json.

    Attributes:
      labels: the names of the labels, in the order of the logits.
      thresholds: for each label the probability above which it is predicted. Empty: 0.5 for each.
      logit_temperature: what the trained logits are divided by; `training.calibrate` chooses it.
    """

    HEAD = ("labels",)
    FROM_DATA = ("labels", "thresholds", "pair", "logit_temperature")

    labels: tuple[str, ...]
    thresholds: tuple[float, ...] = ()
    logit_temperature: Annotated[float, POSITIVE] = 1.0
    kind: str = "multi_label"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_labels(self.labels, 1)
        if not self.thresholds:
            object.__setattr__(self, "thresholds", (THRESHOLD,) * len(self.labels))
        wrong = [value for value in self.thresholds if not 0 <= value <= 1]
        if wrong or len(self.thresholds) != len(self.labels):
            raise ConfigError(
                "`task.thresholds` must be a number from 0 to 1 for each of the "
                f"{len(self.labels)} labels. Received: {shortened(self.thresholds)}."
            )

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """Return which labels N examples have, float32 [N, number of labels] of 0 and 1."""
        return indicators(examples, len(self.labels)).astype(np.float32)


@tf_keras.saving.register_keras_serializable("albert_tf")
class MultiLabelClassifier(TaskModel):
    """A multi-label classifier: pooled_output -> dropout -> dense, one logit per label.

    The sigmoid of a logit is the probability of its label. The loss is the mean over the labels of
    the binary cross-entropy; its targets are float32 [B, number of labels] of 0 and 1.

    Inputs: the encoder's dict of int32 [B, S]. Output: logits float32 [B, number of labels].
    """

    task_class = MultiLabelSettings
    task: MultiLabelSettings

    def new_head(self) -> tf_keras.layers.Layer:
        """Return the dense layer of the logits."""
        return head_dense(len(self.task.labels), "head")

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """Return the logits; see the class for shapes."""
        outputs, key = self.encode(inputs, training, pooled_only=True)
        return self.head(common.dropout(outputs["pooled_output"], self.task.dropout, key))

    def training_losses(self) -> tf_keras.losses.Loss:
        """Return the argument of `compile(loss=...)`."""
        return tf_keras.losses.BinaryCrossentropy(from_logits=True)


def indicators(examples: Sequence[TextExample], num_labels: int) -> np.ndarray:
    """Return which labels each example has, bool [N, number of labels].

    Raises:
      InputError: the label of an example is no list of integers in [0, number of labels).
    """
    has_label: np.ndarray = np.zeros([len(examples), num_labels], bool)
    for number, example in enumerate(examples):
        label = example.label
        is_list = np.iterable(label)
        wrong = [i for i in label if not is_index(i, num_labels)] if is_list else [label]
        if wrong:
            raise InputError(
                f"`label` of example {number} must be a list of indices of labels, integers in "
                f"[0, {num_labels}). Received: {shortened(wrong[0])}."
            )
        has_label[number, list(label)] = True
    return has_label


def chosen_labels(probabilities: np.ndarray, task: MultiLabelSettings) -> list[str]:
    """Return the labels whose probabilities [number of labels] exceed their thresholds.

    The most probable label comes first; of equally probable ones, the first in `task.labels`.
    """
    order = np.argsort(-probabilities, kind="stable")
    chosen = probabilities > np.array(task.thresholds)
    return [task.labels[i] for i in order if chosen[i]]
