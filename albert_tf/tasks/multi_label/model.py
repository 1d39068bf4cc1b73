"""Multi-label classification: any number of labels, or none, for a text or a pair of texts."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from scipy.special import expit, logit

from albert_tf.models.layers import common
from albert_tf.runtime.errors import ConfigError, shortened
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.features import TextFeatures
from albert_tf.tasks.task_model import TaskModel, head_dense, require_labels
from albert_tf.tasks.texts import TextTask, featurize_texts
from albert_tf.text.tokenizer import Tokenizer

THRESHOLD = 0.5  # of a label whose threshold was not chosen


@dataclasses.dataclass(frozen=True)
class MultiLabelTask(TextTask):
    """The `task` section of a multi-label classifier's config.json.

    Attributes:
      labels: the names of the labels, in the order of the logits.
      thresholds: for each label the probability above which it is predicted. Empty: 0.5 for each.
    """

    labels: tuple[str, ...]
    thresholds: tuple[float, ...] = ()
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


@tf_keras.saving.register_keras_serializable("albert_tf")
class MultiLabelClassifier(TaskModel):
    """A multi-label classifier: pooled_output -> dropout -> dense, one logit per label.

    The sigmoid of a logit is the probability of its label. The loss is the mean over the labels of
    the binary cross-entropy; its targets are float32 [B, number of labels] of 0 and 1.

    Inputs: the encoder's dict of int32 [B, S]. Output: logits float32 [B, number of labels].
    """

    task_class = MultiLabelTask

    def __init__(
        self,
        encoder: tf_keras.layers.Layer,
        task: MultiLabelTask,
        **kwargs: Any,
    ) -> None:
        super().__init__(encoder, task, **kwargs)
        self.head = head_dense(len(task.labels), "head")

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """Return the logits; see the class for shapes."""
        outputs, key = self.encode(inputs, training, pooled_only=True)
        return self.head(common.dropout(outputs["pooled_output"], self.task.dropout, key))

    def training_losses(self) -> tf_keras.losses.Loss:
        """Return the argument of `compile(loss=...)`."""
        return tf_keras.losses.BinaryCrossentropy(from_logits=True)


def featurize_label_sets(
    examples: Sequence[TextExample], tokenizer: Tokenizer, task: MultiLabelTask
) -> TextFeatures:
    """Build the features of texts or pairs, or of the windows of long texts.

    The target `label`, float32 [N, number of labels] of 0 and 1, exists if the labels of every
    example are known.

    Raises:
      InputError: an example is a pair and the task takes single texts, or the reverse.
    """
    texts = [TextExample(example.first, example.second) for example in examples]
    features = featurize_texts(texts, tokenizer, task)
    if any(example.label is None for example in examples):
        return features
    label: np.ndarray = indicators(examples, len(task.labels)).astype(np.float32)
    return dataclasses.replace(features, targets={"label": label[features.example]})


def indicators(examples: Sequence[TextExample], num_labels: int) -> np.ndarray:
    """Return which labels each example has, bool [N, number of labels]."""
    found: np.ndarray = np.zeros([len(examples), num_labels], bool)
    for row, example in enumerate(examples):
        found[row, list(label_indices(example))] = True
    return found


def label_indices(example: TextExample) -> tuple[int, ...]:
    """Return the indices of an example's labels, which must be known."""
    assert isinstance(example.label, tuple), "the example is of another kind of task"
    return example.label


def decode_label_sets(
    logits: np.ndarray,
    features: TextFeatures,
    examples: Sequence[TextExample],
    task: MultiLabelTask,
) -> list[dict[str, Any]]:
    """Return the `labels` above their thresholds, the most probable first, and `probabilities`."""
    pooled = features.pooled(expit(logits.astype(np.float64)), task.long_texts)
    return [
        {
            "labels": chosen_labels(row, task),
            "probabilities": dict(zip(task.labels, row.tolist(), strict=True)),
        }
        for row in pooled
    ]


def chosen_labels(probabilities: np.ndarray, task: MultiLabelTask) -> list[str]:
    """Return the labels whose probabilities [number of labels] exceed their thresholds.

    The most probable label comes first; of equally probable ones, the first in `task.labels`.
    """
    order = np.argsort(-probabilities, kind="stable")
    chosen = probabilities > np.array(task.thresholds)
    return [task.labels[i] for i in order if chosen[i]]


def average_label_sets(members: Sequence[np.ndarray]) -> np.ndarray:
    """Return logits [N, C] whose probabilities are the mean of the members'."""
    return logit(np.mean([expit(each.astype(np.float64)) for each in members], axis=0))
