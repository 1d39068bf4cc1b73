"""Sequence classification: a label for a text or a pair of texts."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.models.layers import common
from albert_tf.runtime.arguments import is_index
from albert_tf.runtime.bounds import POSITIVE, one_of
from albert_tf.runtime.errors import ConfigError, InputError, shortened
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.kind import POOLINGS
from albert_tf.tasks.task_model import TaskModel, TemperedLoss, head_dense
from albert_tf.tasks.task_settings import require_labels
from albert_tf.tasks.texts import TextSettings

_EXCLUDED = -1e9  # a similarity that counts as none


@dataclasses.dataclass(frozen=True)
class ClassifierSettings(TextSettings):
    """The `task` section of a classifier's config.json.

    Attributes:
      labels: the names of the labels, in the order of the logits.
      exit_losses: train the pooler and the head on the output of every layer, not only the last
        one, so that exports with fewer layers or early exits predict well (arXiv 2006.04152).
      logit_temperature: what the trained logits are divided by; `training.calibrate` chooses it.
      pooling: what the head reads: `cls`, the encoder's pooled output; or `mean`, the mean of the
        last layer over the pieces of a text, of length 1, as embeddings have it.
      loss: `cross_entropy`; or `contrastive`: texts of one label get similar vectors, by
        `SupervisedContrastive`, and the head is a logistic regression on them, as in SetFit (arXiv
        2209.11055).
      contrast_temperature: what cosines are divided by in the loss `contrastive`.
    """

    HEAD = ("labels",)
    FROM_DATA = ("labels", "pair", "logit_temperature")

    labels: tuple[str, ...]
    exit_losses: bool = False
    logit_temperature: Annotated[float, POSITIVE] = 1.0
    pooling: Annotated[str, one_of(*POOLINGS)] = "cls"
    loss: Annotated[str, one_of("cross_entropy", "contrastive")] = "cross_entropy"
    contrast_temperature: Annotated[float, POSITIVE] = 0.1
    kind: str = "classifier"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_labels(self.labels, 2)
        if self.is_contrastive and self.pooling != "mean":
            raise ConfigError(
                "`task.loss` contrastive requires `task.pooling` mean, whose vectors have length "
                f"1. Received: {self.pooling}."
            )
        if self.exit_losses and self.pooling != "cls":
            raise ConfigError(
                "`task.exit_losses` requires `task.pooling` cls: a pooler at every layer. "
                f"Received: {self.pooling}."
            )

    @property
    def leaves_early(self) -> bool:
        """True if the head reads the pooled output."""
        return self.pooling == "cls"

    @property
    def is_contrastive(self) -> bool:
        """True if vectors are trained by contrast, and the head is a logistic regression."""
        return self.loss == "contrastive"

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """Return the indices of the labels of N examples, int32 [N].

        Raises:
          InputError: a label is not an integer in [0, number of labels).
        """
        for number, example in enumerate(examples):
            if not is_index(example.label, len(self.labels)):
                raise InputError(
                    f"`label` of example {number} must be the index of a label, an integer in [0, "
                    f"{len(self.labels)}). Received: {shortened(example.label)}."
                )
        return np.array([example.label for example in examples], np.int32)

    def head(self) -> tuple:
        """Return what a trained head depends on."""
        return *super().head(), self.pooling


@tf_keras.saving.register_keras_serializable("albert_tf")
class SequenceClassifier(TaskModel):
    """A classifier: pooled output or mean -> dropout -> dense (BERT section 4.1).

    Inputs: the encoder's dict of int32 [B, S]. Output: logits float32 [B, number of labels]; in
    training with `task.exit_losses` the logits of every layer, [B, layers, number of labels], and
    with the loss `contrastive` the vectors of length 1, [B, H].
    """

    task_class = ClassifierSettings
    task: ClassifierSettings

    def __init__(
        self,
        encoder: tf_keras.layers.Layer,
        task: ClassifierSettings,
        **kwargs: Any,
    ) -> None:
        super().__init__(encoder, task, **kwargs)
        self.has_batch_loss = task.is_contrastive
        config = getattr(encoder, "config", None)
        if task.exit_losses and (config is None or config.rematerialize):
            raise ConfigError(
                "`task.exit_losses` needs the outputs of every layer: use an encoder of this "
                "project, with model.rematerialize=false."
            )

    def new_head(self) -> tf_keras.layers.Layer:
        """Return the dense layer of the logits."""
        return head_dense(len(self.task.labels), "head")

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """Return the logits; see the class for shapes."""
        if self.task.pooling == "mean":
            outputs, key = self.encode(inputs, training)
            pooled = self.mean(outputs["sequence_output"], inputs["input_mask"])
            if training and self.task.is_contrastive:
                return pooled
        else:
            outputs, key = self.encode(inputs, training, pooled_only=True)
            pooled = outputs["pooled_output"]
        if training and self.task.exit_losses:
            layers = outputs["encoder_outputs"]
            pooled = tf.stack([self.encoder.pool(layer) for layer in layers], axis=1)  # [B, L, H]
        return self.head(common.dropout(pooled, self.task.dropout, key))

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Compute the loss of `evaluate` and of validation data: of the training's outputs."""
        if not self.task.is_contrastive:
            return super().test_step(data)
        inputs, targets, weights = tf_keras.utils.unpack_x_y_sample_weight(data)
        self.compute_loss(inputs, targets, self.text_vectors()(inputs), weights)
        return self.compute_metrics(inputs, targets, self(inputs), weights)

    @staticmethod
    def mean(hidden: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Return the means [B, H] of [B, S, H] where the mask [B, S] is 1, of length 1."""
        return common.normalized(common.mean_of(hidden, mask))

    def text_vectors(self) -> tf_keras.Model:
        """Return a model of the vectors of length 1 that the head reads if `pooling` is mean."""
        return _TextVectors(self)

    def training_losses(self) -> tf_keras.losses.Loss:
        """Return the argument of `compile(loss=...)`."""
        if self.task.is_contrastive:
            return SupervisedContrastive(self.task.contrast_temperature)
        if self.task.exit_losses:
            return ExitCrossEntropy()
        return tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def evaluation_losses(self) -> tf_keras.losses.Loss:
        """Return the loss of logits outside training."""
        return tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class _TextVectors(tf_keras.Model):
    """The vectors of length 1 that the head of a classifier reads, float32 [B, H]."""

    def __init__(self, classifier: SequenceClassifier) -> None:
        super().__init__()
        self._classifier = classifier

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """Return the vectors."""
        outputs, _ = self._classifier.encode(inputs, False)
        return self._classifier.mean(outputs["sequence_output"], inputs["input_mask"])


@tf_keras.saving.register_keras_serializable("albert_tf")
class SupervisedContrastive(TemperedLoss):
    """The supervised contrastive loss (arXiv 2004.11362, equation 2).

    The loss of a text is the mean, over the others of its label in the batch, of the cross-entropy
    of the softmax over cosine / temperature to all others; 0 for the only text of its label.

    `y_true`: labels, int [B]. `y_pred`: vectors of length 1, [B, D]. Loss: [B].
    """

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each text."""
        labels, vectors = tf.reshape(y_true, [-1]), tf.cast(y_pred, tf.float32)
        itself = tf.eye(tf.size(labels), dtype=tf.bool)
        logits = tf.matmul(vectors, vectors, transpose_b=True) / self.temperature
        logits = tf.nn.log_softmax(tf.where(itself, _EXCLUDED, logits))
        is_alike = tf.equal(labels[:, tf.newaxis], labels[tf.newaxis]) & ~itself
        alike = tf.cast(is_alike, tf.float32)
        total = tf.reduce_sum(tf.where(is_alike, -logits, 0.0), axis=1)
        return tf.math.divide_no_nan(total, tf.reduce_sum(alike, axis=1))


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
