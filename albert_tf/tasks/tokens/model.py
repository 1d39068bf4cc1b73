"""The model for token classification, with its settings and its loss."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

import tensorflow as tf
import tf_keras

from albert_tf.models.layers import common
from albert_tf.runtime.bounds import POSITIVE, Bounded, at_least, between, one_of
from albert_tf.runtime.errors import ConfigError
from albert_tf.tasks.task_model import TaskModel, head_dense

IGNORED = -1  # the target at positions that are not the first of a word
OUTSIDE = 0  # with the scheme bio: the tag of words in no entity


@dataclasses.dataclass(frozen=True)
class TokenTask(Bounded):
    """The `task` section of a token classifier's config.json.

    Attributes:
      labels: the names of the labels.
      scheme: `bio` for entities, which have one or more words each; `words` if every word has a
        label of its own, such as its part of speech.
      seq_length: the maximum pieces of a window over the text, special pieces included.
      doc_stride: the pieces between the starts of two windows.
      dropout: the rate before the head's dense layer.
    """

    KEY = "`task.{}`"

    labels: tuple[str, ...]
    scheme: Annotated[str, one_of("bio", "words")] = "bio"
    seq_length: Annotated[int, at_least(3)] = 128
    doc_stride: Annotated[int, POSITIVE] = 64
    dropout: Annotated[float, between("[0, 1)")] = 0.1
    kind: str = "token_classifier"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.labels or len(set(self.labels)) != len(self.labels):
            raise ConfigError(
                f"`task.labels` must be one or more different names. Received: {self.labels}."
            )

    @property
    def tags(self) -> tuple[str, ...]:
        """The names of the logits.

        With the scheme `bio` they are O, then B-X, for an entity's first word, and I-X for each
        label X. With `words` they are the labels.
        """
        if self.scheme == "words":
            return self.labels
        return ("O", *(f"{prefix}-{label}" for label in self.labels for prefix in "BI"))


@tf_keras.saving.register_keras_serializable("albert_tf")
class TokenClassifier(TaskModel):
    """A token classifier: sequence_output -> dropout -> dense (BERT section 5.3).

    Inputs: the encoder's dict of int32 [B, S]. Output: logits float32 [B, S, number of tags], which
    count at the first piece of each word. `predict` pads S to `task.seq_length`.
    """

    task_class = TokenTask

    def __init__(
        self,
        encoder: tf_keras.layers.Layer,
        task: TokenTask,
        **kwargs: Any,
    ) -> None:
        super().__init__(encoder, task, **kwargs)
        self.head = head_dense(len(task.tags), "head")

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """Return the logits; see the class for shapes."""
        outputs, key = self.encode(inputs, training)
        return self.head(common.dropout(outputs["sequence_output"], self.task.dropout, key))

    def predict_step(self, data: Any) -> tf.Tensor:
        """Return the logits, padded with zeros so that batches of all widths concatenate."""
        logits = super().predict_step(data)
        padding = self.task.seq_length - tf.shape(logits)[1]
        logits = tf.pad(logits, [[0, 0], [0, padding], [0, 0]])
        return tf.ensure_shape(logits, [None, self.task.seq_length, len(self.task.tags)])

    def training_losses(self) -> tf_keras.losses.Loss:
        """Return the argument of `compile(loss=...)`."""
        return TokenCrossEntropy()


@tf_keras.saving.register_keras_serializable("albert_tf")
class TokenCrossEntropy(tf_keras.losses.Loss):
    """The mean cross-entropy of the words of a batch.

    Targets are int [B, T], `IGNORED` where there is no word; logits are [B, S, tags], S <= T.
    """

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return [B], whose mean is the mean over the words: a longer text has a larger share."""
        targets = tf.cast(y_true, tf.int32)[:, : tf.shape(y_pred)[1]]
        is_word = targets != IGNORED
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(targets, 0), y_pred)
        return mean_over_words(losses, is_word)


def mean_over_words(losses: tf.Tensor, is_word: tf.Tensor) -> tf.Tensor:
    """Return [B], whose mean is that of the losses [B, S] where `is_word`, bool [B, S]."""
    counted = tf.cast(is_word, tf.float32)
    words_per_row = tf.reduce_sum(counted) / tf.cast(tf.shape(counted)[0], tf.float32)
    return tf.math.divide_no_nan(tf.reduce_sum(losses * counted, axis=1), words_per_row)
