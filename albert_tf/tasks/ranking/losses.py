"""The losses of rankings.

Shapes: B queries with N candidates each, or M candidates in all.
"""

import tensorflow as tf
import tf_keras

ABSENT = -1e9  # the score of a candidate that a query does not have, or that is not read


class _QueryLoss(tf_keras.losses.Loss):
    """A loss of the scores of a query's candidates.

    In training, `y_true` [B, N] are labels in [0, 1], -1 where there is no candidate, and `y_pred`
    [B, N] are scores, `ABSENT` where none was read. The loss is that of each query, [B].

    Of all candidates of a part, one after another, `y_true` [M, 2] are the number of the query and
    the label, and `y_pred` [M] the scores. The loss of a candidate, [M], is its share of that of
    its query: the mean is the mean over the queries.
    """

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss; see the class for shapes."""
        scores = tf.cast(y_pred, tf.float32)
        if scores.shape.rank == 1:
            return self._shares(tf.cast(y_true, tf.float32), scores)
        labels = tf.cast(tf.reshape(y_true, tf.shape(scores)), tf.float32)
        return self.of_queries(labels, scores, (labels >= 0) & (scores > ABSENT / 2))

    def _shares(self, y_true: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
        _, query, count = tf.unique_with_counts(y_true[:, 0])  # [M], [Q]

        def by_query(values: tf.Tensor, default: float) -> tf.Tensor:
            return tf.RaggedTensor.from_value_rowids(values, query).to_tensor(default)  # [Q, N]

        labels = by_query(y_true[:, 1], -1.0)
        losses = self.of_queries(labels, by_query(scores, ABSENT), labels >= 0)
        count = tf.cast(count, tf.float32)
        return tf.gather(losses / count, query) * tf.reduce_mean(count)

    def of_queries(self, labels: tf.Tensor, scores: tf.Tensor, is_read: tf.Tensor) -> tf.Tensor:
        """Return the losses of queries, [B], over the candidates that were read; all are [B, N]."""
        raise NotImplementedError


@tf_keras.saving.register_keras_serializable("albert_tf")
class PointwiseLoss(_QueryLoss):
    """The mean over the candidates of the cross-entropy of sigmoid(score) and the label."""

    def of_queries(self, labels: tf.Tensor, scores: tf.Tensor, is_read: tf.Tensor) -> tf.Tensor:
        """Return the losses of queries, [B]."""
        losses = tf.nn.sigmoid_cross_entropy_with_logits(
            tf.where(is_read, labels, 0.0), tf.where(is_read, scores, 0.0)
        )
        weights = tf.cast(is_read, tf.float32)
        total = tf.reduce_sum(weights * losses, axis=1)
        return total / tf.maximum(tf.reduce_sum(weights, axis=1), 1.0)


@tf_keras.saving.register_keras_serializable("albert_tf")
class ListwiseLoss(_QueryLoss):
    """The cross-entropy of the softmax over a query's scores and its labels, divided by their sum.

    That is the top-one loss of ListNet (Cao et al. 2007) with normalized labels. A query without a
    relevant candidate has the loss 0.
    """

    def of_queries(self, labels: tf.Tensor, scores: tf.Tensor, is_read: tf.Tensor) -> tf.Tensor:
        """Return the losses of queries, [B]."""
        labels = tf.where(is_read, labels, 0.0)
        total = tf.reduce_sum(labels, axis=1, keepdims=True)
        targets = tf.math.divide_no_nan(labels, total)
        log_probabilities = tf.nn.log_softmax(tf.where(is_read, scores, ABSENT))
        return -tf.reduce_sum(targets * log_probabilities, axis=1)
