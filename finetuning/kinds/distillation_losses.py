"""Losses that compare the logits of a student with those of its teacher (Hinton et al. 2015)."""

from typing import Any

import tensorflow as tf
import tf_keras


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
class PerWordLoss(tf_keras.losses.Loss):
    """The sum of another loss over the words of a window, divided by `words_per_window`.

    `y_true` is float32 [B, T, tags], NaN where the teacher has no output; `y_pred` is [B, S, tags],
    S <= T.
    """

    def __init__(
        self,
        loss: tf_keras.losses.Loss,
        words_per_window: float,
        name: str = "of_words",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.loss, self.words_per_window = loss, words_per_window

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        loss = tf_keras.saving.serialize_keras_object(self.loss)
        return super().get_config() | {"loss": loss, "words_per_window": self.words_per_window}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "PerWordLoss":
        """Build the loss from the result of `get_config`."""
        loss = tf_keras.saving.deserialize_keras_object(config["loss"])
        return cls(**config | {"loss": loss})

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each window, [B]; both arguments are logits."""
        y_true = y_true[:, : tf.shape(y_pred)[1]]
        is_word = ~tf.math.is_nan(y_true[:, :, 0])
        known = tf.where(is_word[:, :, tf.newaxis], y_true, tf.zeros_like(y_true))
        losses = tf.where(is_word, self.loss.call(known, y_pred), tf.zeros_like(y_pred[:, :, 0]))
        return tf.reduce_sum(losses, axis=1) / self.words_per_window
