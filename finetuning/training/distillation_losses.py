"""Losses that compare the logits of a student with those of its teacher (Hinton et al. 2015)."""

from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.tasks.tokens.model import mean_over_words


@tf_keras.saving.register_keras_serializable("albert_tf")
class SoftCrossEntropy(tf_keras.losses.Loss):
    """T^2 times the cross-entropy of the student's softmax(logits / T) with the teacher's."""

    def __init__(self, temperature: float, name: str = "soft_cross_entropy", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.temperature = temperature

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return super().get_config() | {"temperature": self.temperature}

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each example; `y_true` and `y_pred` are logits."""
        teacher_probabilities = tf.nn.softmax(y_true / self.temperature)
        losses = tf.nn.softmax_cross_entropy_with_logits(
            teacher_probabilities, y_pred / self.temperature
        )
        return self.temperature**2 * losses


@tf_keras.saving.register_keras_serializable("albert_tf")
class SigmoidSoftCrossEntropy(SoftCrossEntropy):
    """The same for several labels: sigmoids instead of a softmax, and the mean over the labels."""

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each example; `y_true` and `y_pred` are logits."""
        losses = tf.nn.sigmoid_cross_entropy_with_logits(
            tf.nn.sigmoid(y_true / self.temperature), y_pred / self.temperature
        )
        return self.temperature**2 * tf.reduce_mean(losses, axis=-1)


@tf_keras.saving.register_keras_serializable("albert_tf")
class WordSoftCrossEntropy(SoftCrossEntropy):
    """The mean over the words of a batch.

    `y_true` is float32 [B, T, tags], NaN where the teacher has no output; `y_pred` is [B, S, tags],
    S <= T.
    """

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return [B], whose mean is the mean over the words; both arguments are logits."""
        y_true, is_word = _words(y_true, y_pred)
        return mean_over_words(super().call(y_true, y_pred), is_word)


@tf_keras.saving.register_keras_serializable("albert_tf")
class WordMeanSquaredError(tf_keras.losses.Loss):
    """The mean squared error of the logits of the words, shaped as for `WordSoftCrossEntropy`."""

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return [B], whose mean is the mean over the words."""
        y_true, is_word = _words(y_true, y_pred)
        return mean_over_words(tf.reduce_mean(tf.square(y_true - y_pred), axis=-1), is_word)


def _words(y_true: tf.Tensor, y_pred: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the targets [B, S, tags] without NaN, and where words are, bool [B, S]."""
    y_true = y_true[:, : tf.shape(y_pred)[1]]
    is_word = ~tf.math.is_nan(y_true[:, :, 0])
    return tf.where(is_word[:, :, tf.newaxis], y_true, tf.zeros_like(y_true)), is_word
