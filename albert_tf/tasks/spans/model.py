"""Spans: the part of a context that answers a question (SQuAD)."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

import tensorflow as tf
import tf_keras

from albert_tf.runtime.bounds import NUMBER, POSITIVE, Bounded, at_least, between
from albert_tf.tasks.spans.heads import IndependentHead, JointHead
from albert_tf.tasks.task_model import TaskModel


@dataclasses.dataclass(frozen=True)
class SpanTask(Bounded):
    """The `task` section of a span run's config.json.

    seq_length: pieces of a window over the context, with the question and the special ones.
    query_length: pieces of the question at most, and never more than half of the window.
    doc_stride: pieces of context between the beginnings of two windows.
    max_answer_length: pieces of an answer at most.
    n_best: answers that are kept of an example.
    answerable: whether a question may have no answer (SQuAD 2.0).
    beam: starts of a window, and ends of each start, that are considered where `answerable`.
    null_threshold: the answer is empty where the logit of there being none exceeds it.
    dropout: in the part that says whether there is an answer (paper, Table 14: 0.1).
    """

    KEY = "`task.{}`"

    seq_length: Annotated[int, at_least(8)] = 384
    query_length: Annotated[int, POSITIVE] = 64
    doc_stride: Annotated[int, POSITIVE] = 128
    max_answer_length: Annotated[int, POSITIVE] = 30
    n_best: Annotated[int, POSITIVE] = 20
    answerable: bool = False
    beam: Annotated[int, POSITIVE] = 5
    null_threshold: Annotated[float, NUMBER] = 0.0
    dropout: Annotated[float, between("[0, 1)")] = 0.1
    kind: str = "span"


@tf_keras.saving.register_keras_serializable("albert_tf")
class SpanModel(TaskModel):
    """Where in its window an answer begins and ends, and of SQuAD 2.0 whether there is one.

    An answer lies in the context, or is [CLS] where the window holds none.

    Inputs: the encoder's dict of int32 [B, S]. In training also, where `task.answerable`,
      `start_position` int32 [B]: the end is learned behind the true start.
    Output: K likeliest spans `start`, `end` int32 [B, K] and `score` float32 [B, K], by which the
      spans of all windows are ranked: the sum of the logits of start and end, or where
      `task.answerable` their log probability; then also `null` float32 [B], the logit of there
      being no answer. In training, logits under the names of the targets.
    """

    task_class = SpanTask

    def __init__(
        self,
        encoder: tf_keras.layers.Layer,
        task: SpanTask,
        **kwargs: Any,
    ) -> None:
        super().__init__(encoder, task, **kwargs)
        self.head = (
            JointHead(task.beam, task.dropout)
            if task.answerable
            else IndependentHead(task.max_answer_length, task.n_best)
        )

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> dict[str, tf.Tensor]:
        if training:
            return self._logits(inputs, training=True)
        outputs, _ = self.encode(inputs, training=False)
        hidden = tf.cast(outputs["sequence_output"], tf.float32)
        return self.head(hidden, allowed_positions(inputs["input_type_ids"]))

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """The loss of `evaluate` and of validation data: of the logits, without dropout."""
        inputs, targets, weights = tf_keras.utils.unpack_x_y_sample_weight(data)
        logits = self._logits(inputs, training=False)
        self.compute_loss(inputs, targets, logits, weights)
        return self.compute_metrics(inputs, targets, logits, weights)

    def training_losses(self) -> dict[str, tf_keras.losses.Loss]:
        """Half of each: (start + end) / 2, and half of the answerability's cross-entropy."""
        losses = {"start_position": HalfPosition(), "end_position": HalfPosition()}
        return losses | {"is_impossible": HalfAnswerability()} if self.task.answerable else losses

    def _logits(self, inputs: Mapping[str, tf.Tensor], training: bool) -> dict[str, tf.Tensor]:
        outputs, key = self.encode(inputs, training)
        hidden = tf.cast(outputs["sequence_output"], tf.float32)
        allowed = allowed_positions(inputs["input_type_ids"])
        if isinstance(self.head, JointHead):
            return self.head.logits(hidden, allowed, inputs.get("start_position"), key)
        return self.head.logits(hidden, allowed)


@tf_keras.saving.register_keras_serializable("albert_tf")
class HalfPosition(tf_keras.losses.Loss):
    """Half the cross-entropy of a position: targets int [B], logits [B, S]."""

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        targets = tf.reshape(tf.cast(y_true, tf.int32), [-1])
        return 0.5 * tf.nn.sparse_softmax_cross_entropy_with_logits(targets, y_pred)


@tf_keras.saving.register_keras_serializable("albert_tf")
class HalfAnswerability(tf_keras.losses.Loss):
    """Half the sigmoid cross-entropy of a logit: targets 0 or 1 [B], logits [B]."""

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        targets = tf.cast(tf.reshape(y_true, tf.shape(y_pred)), tf.float32)
        return 0.5 * tf.nn.sigmoid_cross_entropy_with_logits(targets, y_pred)


def allowed_positions(type_ids: tf.Tensor) -> tf.Tensor:
    """bool [B, S]: [CLS] and the context, which is all of type 1 but its last, [SEP]."""
    is_second = tf.cast(type_ids, tf.bool)
    context = is_second[:, :-1] & is_second[:, 1:]
    cls, rest = tf.ones_like(context[:, :1]), context[:, 1:]
    return tf.concat([cls, rest, tf.zeros_like(cls)], 1)
