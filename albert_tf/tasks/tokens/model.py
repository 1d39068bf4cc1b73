"""The model for token classification, with its settings and its loss."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

import tensorflow as tf
import tf_keras

from albert_tf.models.layers import common
from albert_tf.runtime.bounds import MOST_PIECES, POSITIVE, at_least, between, one_of
from albert_tf.tasks.task_model import TaskModel, head_dense
from albert_tf.tasks.task_settings import WindowSettings, require_labels

IGNORED = -1  # the target at positions that are not the first of a word
OUTSIDE = 0  # with the scheme bio: the tag of words in no entity


@dataclasses.dataclass(frozen=True)
class TokenSettings(WindowSettings):
    """The `task` section of a token classifier's config.json.

    Attributes:
      labels: the names of the labels.
      scheme: `bio` for entities, which have one or more words each; `words` if every word has a
        label of its own, such as its part of speech.
      seq_length: the maximum pieces of a window over the text, special pieces included.
      doc_stride: the pieces between the starts of two windows.
      dropout: the rate before the head's dense layer.
      words_per_window: the mean number of words of a training window, by which losses are divided.
    """

    HEAD = ("labels", "scheme")
    FROM_DATA = ("labels", "scheme", "words_per_window")

    labels: tuple[str, ...]
    scheme: Annotated[str, one_of("bio", "words")] = "bio"
    seq_length: Annotated[int, at_least(3), MOST_PIECES] = 128
    doc_stride: Annotated[int, POSITIVE, MOST_PIECES] = 64
    dropout: Annotated[float, between("[0, 1)")] = 0.1
    words_per_window: Annotated[float, POSITIVE] = 1.0
    kind: str = "token_classifier"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_labels(self.labels, 1)

    @property
    def tags(self) -> tuple[str, ...]:
        """The names of the logits.

        With the scheme `bio` they are O, then B-X, for an entity's first word, and I-X for each
        label X. With `words` they are the labels.
        """
        if self.scheme == "words":
            return self.labels
        return ("O", *(f"{prefix}-{label}" for label in self.labels for prefix in "BI"))


def tag_of(label: Any, is_begin: Any) -> Any:
    """Return the tag, with the scheme `bio`, of a word in an entity of a label; also of arrays."""
    return 2 * label + 2 - is_begin


def label_of(tag: Any) -> Any:
    """Return the label of a tag with the scheme `bio`, -1 for O; also of arrays and tensors."""
    return (tag - 1) // 2


def begins_entity(tag: Any, before: Any) -> Any:
    """Return whether a word with a tag is the first of an entity; also of arrays and tensors.

    As in conlleval and seqeval, I-X begins an entity unless the word before it is in one of X.
    `before` is the tag of that word, or `OUTSIDE` if there is none.
    """
    label = label_of(tag)
    return (label >= 0) & ((tag == tag_of(label, True)) | (label != label_of(before)))


@tf_keras.saving.register_keras_serializable("albert_tf")
class TokenClassifier(TaskModel):
    """A token classifier: sequence_output -> dropout -> dense (BERT section 5.3).

    Inputs: the encoder's dict of int32 [B, S]. Output: logits float32 [B, S, number of tags], which
    count at the first piece of each word. `predict` pads S to `task.seq_length`.
    """

    task_class = TokenSettings
    task: TokenSettings

    def new_head(self) -> tf_keras.layers.Layer:
        """Return the dense layer of the logits."""
        return head_dense(len(self.task.tags), "head")

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
        return TokenCrossEntropy(self.task.words_per_window)


@tf_keras.saving.register_keras_serializable("albert_tf")
class TokenCrossEntropy(tf_keras.losses.Loss):
    """The sum of the cross-entropies of a window's words, divided by `words_per_window`.

    The mean over a batch is that over its words, up to their number. That number is a constant, so
    that replicas and parts of a batch add up to the gradient of the whole.

    Targets are int [B, T], `IGNORED` where there is no word; logits are [B, S, tags], S <= T.
    """

    def __init__(self, words_per_window: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.words_per_window = words_per_window

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return super().get_config() | {"words_per_window": self.words_per_window}

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each window, [B]."""
        targets = tf.cast(y_true, tf.int32)[:, : tf.shape(y_pred)[1]]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(targets, 0), y_pred)
        words = tf.where(targets != IGNORED, losses, tf.zeros_like(losses))
        return tf.reduce_sum(words, axis=1) / self.words_per_window
