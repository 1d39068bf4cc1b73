"""Sequence classification: a label for a text or a pair of texts."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.models.layers import common
from albert_tf.runtime.bounds import POSITIVE
from albert_tf.runtime.errors import ConfigError
from albert_tf.tasks.task_model import TaskModel, head_dense
from albert_tf.tasks.task_settings import require_labels
from albert_tf.tasks.texts import TextSettings


@dataclasses.dataclass(frozen=True)
class ClassifierSettings(TextSettings):
    """The `task` section of a classifier's config.json.

    Attributes:
      labels: the names of the labels, in the order of the logits.
      exit_losses: train the pooler and the head on the output of every layer, not only the last
        one, so that exports with fewer layers or early exits predict well (arXiv 2006.04152).
      logit_temperature: what the trained logits are divided by; `training.calibrate` chooses it.
    """

    LABEL_DTYPE = np.int32
    HEAD = ("labels",)
    FROM_DATA = ("labels", "pair", "logit_temperature")

    labels: tuple[str, ...]
    exit_losses: bool = False
    logit_temperature: Annotated[float, POSITIVE] = 1.0
    kind: str = "classifier"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_labels(self.labels, 2)


@tf_keras.saving.register_keras_serializable("albert_tf")
class SequenceClassifier(TaskModel):
    """A classifier: pooled_output -> dropout -> dense (BERT section 4.1).

    Inputs: the encoder's dict of int32 [B, S]. Output: logits float32 [B, number of labels]; in
    training with `task.exit_losses` the logits of every layer, [B, layers, number of labels].
    """

    task_class = ClassifierSettings

    def __init__(
        self,
        encoder: tf_keras.layers.Layer,
        task: ClassifierSettings,
        **kwargs: Any,
    ) -> None:
        super().__init__(encoder, task, **kwargs)
        self.head = head_dense(len(task.labels), "head")
        config = getattr(encoder, "config", None)
        if task.exit_losses and (config is None or config.rematerialize):
            raise ConfigError(
                "`task.exit_losses` needs the outputs of every layer: use an encoder of this "
                "project, with model.rematerialize=false."
            )

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """Return the logits; see the class for shapes."""
        outputs, key = self.encode(inputs, training, pooled_only=True)
        pooled = outputs["pooled_output"]
        if training and self.task.exit_losses:
            layers = outputs["encoder_outputs"]
            pooled = tf.stack([self.encoder.pool(layer) for layer in layers], axis=1)  # [B, L, H]
        return self.head(common.dropout(pooled, self.task.dropout, key))

    def training_losses(self) -> tf_keras.losses.Loss:
        """Return the argument of `compile(loss=...)`."""
        if self.task.exit_losses:
            return ExitCrossEntropy()
        return tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf_keras.saving.register_keras_serializable("albert_tf")
class ExitCrossEntropy(tf_keras.losses.Loss):
    """The mean of the layers' cross-entropies, layer k with weight k (arXiv 2006.04152, 3.3).

    Targets are int [B]. Logits are [B, layers, C], or [B, C] for the last layer only.
    """

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each example, [B]."""
        logits = y_pred if y_pred.shape.rank == 3 else y_pred[:, tf.newaxis]
        targets = tf.repeat(tf.reshape(y_true, [-1, 1]), tf.shape(logits)[1], axis=1)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(targets, tf.int32), logits)
        weights = tf.range(1.0, tf.cast(tf.shape(losses)[1], tf.float32) + 1)
        return tf.linalg.matvec(losses, weights) / tf.reduce_sum(weights)
