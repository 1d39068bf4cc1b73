"""The model for extractive question answering, with its settings and losses (SQuAD)."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

import tensorflow as tf
import tf_keras

from albert_tf.runtime.bounds import MOST_PIECES, NUMBER, POSITIVE, at_least, between
from albert_tf.tasks.spans.heads import IndependentHead, JointHead
from albert_tf.tasks.task_model import TaskModel
from albert_tf.tasks.task_settings import WindowSettings


@dataclasses.dataclass(frozen=True)
class SpanSettings(WindowSettings):
    """The `task` section of a span run's config.json.

    Attributes:
      seq_length: the pieces of a window over the context, with the question and the special pieces.
      query_length: the maximum pieces of the question, never more than half of the window.
      doc_stride: the pieces of context between the starts of two windows.
      max_answer_length: the maximum pieces of an answer.
      n_best: the number of answers to keep per example.
      answerable: True if questions may have no answer (SQuAD 2.0).
      beam: with `answerable`, the number of starts per window and of ends per start to consider.
      null_threshold: the answer is empty if the logit of there being none exceeds this.
      dropout: the rate in the part that predicts whether there is an answer (paper, Table 14: 0.1).
    """

    HEAD = ("answerable",)
    FROM_DATA = ("answerable",)

    seq_length: Annotated[int, at_least(8), MOST_PIECES] = 384
    query_length: Annotated[int, POSITIVE, MOST_PIECES] = 64
    doc_stride: Annotated[int, POSITIVE, MOST_PIECES] = 128
    max_answer_length: Annotated[int, POSITIVE, MOST_PIECES] = 30
    n_best: Annotated[int, POSITIVE, MOST_PIECES] = 20
    answerable: bool = False
    beam: Annotated[int, POSITIVE, MOST_PIECES] = 5
    null_threshold: Annotated[float, NUMBER] = 0.0
    dropout: Annotated[float, between("[0, 1)")] = 0.1
    kind: str = "span"

    @property
    def max_question_pieces(self) -> int:
        """The maximum pieces of the question, at most half of the window."""
        return min(self.query_length, (self.seq_length - 3) // 2)

    @property
    def num_spans(self) -> int:
        """The number of spans that the model returns of a window."""
        return self.beam**2 if self.answerable else self.n_best


@tf_keras.saving.register_keras_serializable("albert_tf")
class SpanModel(TaskModel):
    """A model that predicts where an answer begins and ends in its window.

    For SQuAD 2.0 it also predicts whether there is an answer. An answer lies in the context, or is
    [CLS] if the window contains none.

    Inputs: the encoder's dict of int32 [B, S]. Training with `task.answerable` also needs
    `start_position` int32 [B], because the end is trained on the true start.

    Output: the K likeliest spans as `start`, `end` int32 [B, K] and `score` float32 [B, K], which
    ranks the spans of all windows. The score is the sum of the logits of start and end. With
    `task.answerable` it is their log probability, and there is `null` float32 [B], the logit of
    there being no answer. In training, the outputs are logits under the names of the targets.
    """

    task_class = SpanSettings
    task: SpanSettings

    def new_head(self) -> IndependentHead | JointHead:
        """Return a joint head for SQuAD 2.0, or else an independent one."""
        task = self.task
        if task.answerable:
            return JointHead(task.beam, task.dropout)
        return IndependentHead(task.max_answer_length, task.n_best)

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> dict[str, tf.Tensor]:
        """Return the likeliest spans or, in training, the logits; see the class for shapes."""
        if training:
            return self._logits(inputs, training=True)
        outputs, _ = self.encode(inputs, training=False)
        hidden = tf.cast(outputs["sequence_output"], tf.float32)
        return self.head(hidden, allowed_positions(inputs["input_type_ids"]))

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Compute the loss of `evaluate` and of validation data, from logits without dropout."""
        inputs, targets, weights = tf_keras.utils.unpack_x_y_sample_weight(data)
        logits = self._logits(inputs, training=False)
        self.compute_loss(inputs, targets, logits, weights)
        return self.compute_metrics(inputs, targets, logits, weights)

    def mean_loss(self, outputs: Any, targets: Mapping[str, Any], batch_size: int) -> None:
        """Return None: outside training, the outputs are the best spans, which have no loss."""
        return None

    def training_losses(self) -> dict[str, tf_keras.losses.Loss]:
        """Return the losses: (start + end) / 2, and half of the answerability's cross-entropy."""
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
        """Return the loss of each example, [B]."""
        targets = tf.reshape(tf.cast(y_true, tf.int32), [-1])
        return 0.5 * tf.nn.sparse_softmax_cross_entropy_with_logits(targets, y_pred)


@tf_keras.saving.register_keras_serializable("albert_tf")
class HalfAnswerability(tf_keras.losses.Loss):
    """Half the sigmoid cross-entropy of a logit: targets 0 or 1 [B], logits [B]."""

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each example, [B]."""
        targets = tf.cast(tf.reshape(y_true, tf.shape(y_pred)), tf.float32)
        return 0.5 * tf.nn.sigmoid_cross_entropy_with_logits(targets, y_pred)


def allowed_positions(type_ids: tf.Tensor) -> tf.Tensor:
    """Return bool [B, S], True at [CLS] and in the context.

    The context is the part of type 1 without its last position, which is [SEP].
    """
    is_second = tf.cast(type_ids, tf.bool)
    context = is_second[:, :-1] & is_second[:, 1:]
    cls, rest = tf.ones_like(context[:, :1]), context[:, 1:]
    return tf.concat([cls, rest, tf.zeros_like(cls)], 1)
