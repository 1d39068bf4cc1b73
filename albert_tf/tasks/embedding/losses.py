"""The losses of embeddings. Those of pairs depend on the whole batch.

Shapes: B examples, P texts each, vectors of width D. The vectors have length 1, except those of
`TeacherSquared`.
"""

from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.models.layers.common import normalized
from albert_tf.tasks.task_model import TemperedLoss

_EXCLUDED = -1e9  # a similarity that counts as none


@tf_keras.saving.register_keras_serializable("albert_tf")
class InBatchNegatives(TemperedLoss):
    """InfoNCE: each first text must find its second one among those of the whole batch.

    The loss of a row is the cross-entropy of the softmax over cosine / temperature. The candidates
    are the second texts and the given negatives of all rows, except those that are right too: texts
    that equal the first one, or the second one of a row with the same first one. With `symmetric`,
    it is the mean with the loss of the other way, in which the second text must find its first one
    among those of the batch.

    `y_true`: the number of each text, int [B, P], -1 where there is none; equal texts have the same
    number. If it is [B], it is that of all P texts. `y_pred`: vectors [B, P, D]. Loss: [B].
    """

    def __init__(self, temperature: float, symmetric: bool = False, **kwargs: Any) -> None:
        super().__init__(temperature, **kwargs)
        self.symmetric = symmetric

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return super().get_config() | {"symmetric": self.symmetric}

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each row."""
        width = y_pred.shape[-1]
        texts = tf.reshape(tf.cast(y_true, tf.int32), [tf.shape(y_pred)[0], -1])
        texts = tf.broadcast_to(texts, tf.shape(y_pred)[:2])  # [B, P]
        first, second, vectors = texts[:, 0], texts[:, 1], tf.cast(y_pred, tf.float32)
        candidates = tf.concat([second, tf.reshape(texts[:, 2:], [-1])], 0)  # [B + B (P - 2)]
        candidate_vectors = tf.concat([vectors[:, 1], tf.reshape(vectors[:, 2:], [-1, width])], 0)
        refused = _are_right(first, second, candidates) | (candidates < 0)
        loss = self._entropy(vectors[:, 0], candidate_vectors, refused)
        if not self.symmetric:
            return loss
        refused = _are_right(second, first, first)
        return (loss + self._entropy(vectors[:, 1], vectors[:, 0], refused)) / 2

    def _entropy(self, asked: tf.Tensor, candidates: tf.Tensor, refused: tf.Tensor) -> tf.Tensor:
        """Return the cross-entropies [B]; the right candidate of a row is that of its number."""
        rows = tf.shape(asked)[0]
        is_right = tf.eye(rows, tf.shape(candidates)[0], dtype=tf.bool)
        logits = tf.matmul(asked, candidates, transpose_b=True) / self.temperature
        logits = tf.where(refused & ~is_right, _EXCLUDED, logits)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(rows), logits)


def _are_right(asked: tf.Tensor, answers: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    """Return which candidates [N] are right for the texts `asked` [B], bool [B, N].

    They equal the text, or the answer to an equal one. The arguments are numbers of texts.
    """
    of_equals = tf.cast(_equal(asked, asked), tf.float32)
    are_answers = tf.cast(_equal(answers, candidates), tf.float32)
    return _equal(asked, candidates) | (tf.matmul(of_equals, are_answers) > 0)


def _equal(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Return which numbers [M] and [N] are equal, bool [M, N]."""
    return left[:, tf.newaxis] == right[tf.newaxis]


def cosines(vectors: tf.Tensor) -> tf.Tensor:
    """Return the cosine of the first two of the vectors [B, P, D] of each row, float32 [B]."""
    vectors = tf.cast(vectors, tf.float32)
    return tf.reduce_sum(vectors[:, 0] * vectors[:, 1], axis=-1)


@tf_keras.saving.register_keras_serializable("albert_tf")
class CosineError(tf_keras.losses.Loss):
    """The squared difference of the cosine of a pair and its score, which `low` and `high` limit.

    The target is 0 for a score of `low` and 1 for one of `high`. `y_true`: scores [B]. `y_pred`:
    vectors [B, 2, D]. Loss: [B].
    """

    def __init__(self, low: float, high: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.low, self.high = low, high

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return super().get_config() | {"low": self.low, "high": self.high}

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each pair."""
        targets = (tf.cast(tf.reshape(y_true, [-1]), tf.float32) - self.low) / (
            self.high - self.low
        )
        return tf.square(cosines(y_pred) - targets)


@tf_keras.saving.register_keras_serializable("albert_tf")
class CoSENT(TemperedLoss):
    """A loss of the order of scored pairs: log(1 + sum of exp((cos_j - cos_i) / temperature)).

    The sum is over all i and j in the batch of which i has the higher score. `y_true`: scores [B].
    `y_pred`: vectors [B, 2, D]. Loss: [B], the same for each pair.
    """

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of the batch, for each pair."""
        scores, logits = tf.reshape(y_true, [-1]), cosines(y_pred) / self.temperature
        is_higher = scores[:, tf.newaxis] > scores[tf.newaxis]
        differences = tf.where(is_higher, logits[tf.newaxis] - logits[:, tf.newaxis], _EXCLUDED)
        loss = tf.reduce_logsumexp(tf.concat([[0.0], tf.reshape(differences, [-1])], 0))
        return tf.fill(tf.shape(logits), loss)


@tf_keras.saving.register_keras_serializable("albert_tf")
class TeacherCosine(tf_keras.losses.Loss):
    """One minus the cosine of a vector and its teacher's.

    `y_true` and `y_pred`: vectors [B, D]. Loss: [B].
    """

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each text."""
        wanted = normalized(tf.cast(y_true, tf.float32))
        return 1 - tf.reduce_sum(wanted * tf.cast(y_pred, tf.float32), axis=-1)


@tf_keras.saving.register_keras_serializable("albert_tf")
class TeacherSquared(tf_keras.losses.Loss):
    """The squared distance of a vector, before it is normalized, to its teacher's.

    `y_true` and `y_pred`: vectors [B, D]. Loss: [B].
    """

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each text."""
        difference = tf.cast(y_true, tf.float32) - tf.cast(y_pred, tf.float32)
        return tf.reduce_sum(tf.square(difference), axis=-1)
