"""The model of rankings: a cross-encoder, which reads a query together with a candidate."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Annotated

import tensorflow as tf
import tf_keras

from albert_tf.models.encoder import INPUTS
from albert_tf.models.layers import common
from albert_tf.runtime import keyed_random
from albert_tf.runtime.bounds import MOST_PIECES, POSITIVE, at_least, at_most, between, one_of
from albert_tf.tasks.ranking.losses import ABSENT, ListwiseLoss, PointwiseLoss
from albert_tf.tasks.task_model import TaskModel, head_dense
from albert_tf.tasks.task_settings import TaskSettings

LOSSES: dict[str, Callable[[], tf_keras.losses.Loss]] = {
    "listwise": ListwiseLoss,
    "pointwise": PointwiseLoss,
}
_SAMPLE = 2  # what sampling folds into the key of a step; the encoder and the head have 0 and 1


@dataclasses.dataclass(frozen=True)
class RankingSettings(TaskSettings):
    """The `task` section of a ranking's config.json.

    Attributes:
      seq_length: the maximum pieces of query and candidate, special pieces included. If they are
        longer, the longer of the two loses pieces at its end.
      num_candidates: the most candidates of a query that a training step reads; predictions rank
        all of them.
      loss: see `albert_tf.tasks.ranking.losses`. `listwise`, the cross-entropy over the candidates
        of a query, or `pointwise`, that of each candidate.
      dropout: the rate before the head's dense layer (paper, Table 14: 0.1).
      largest_grade: the largest grade of the training data, by which grades are divided.
    """

    FROM_DATA = ("largest_grade",)

    seq_length: Annotated[int, at_least(5, "for a pair with its special pieces"), MOST_PIECES] = 128
    num_candidates: Annotated[int, at_least(2), at_most(2**10)] = 16
    loss: Annotated[str, one_of(*LOSSES)] = "listwise"
    dropout: Annotated[float, between("[0, 1)")] = 0.1
    largest_grade: Annotated[float, POSITIVE] = 1.0
    kind: str = "ranking"


@tf_keras.saving.register_keras_serializable("albert_tf")
class RankingModel(TaskModel):
    """A cross-encoder: pooled_output -> dropout -> dense, one score for each pair of texts.

    Inputs: the encoder's dict of int32 [B, S] for pairs of a query and a candidate, or [B, N, S]
    for N candidates of each query; a row whose `input_mask` is 0 is no candidate. Output: scores
    float32 [B] or [B, N], `ABSENT` for those rows.

    In training, `grades` float32 [B, N] in the inputs, -1 where there is no candidate, choose the
    candidates of each query that are read; see `sample`. The scores of the others are `ABSENT`.
    """

    task_class = RankingSettings
    task: RankingSettings

    def new_head(self) -> tf_keras.layers.Layer:
        """Return the dense layer of the scores."""
        return head_dense(1, "head")

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """Return the scores; see the class for shapes."""
        ids, grades = {name: inputs[name] for name in INPUTS}, inputs.get("grades")
        if ids["input_mask"].shape.rank == 2:
            return self._scores(ids, training)
        if not training or grades is None:
            return self._of_lists(ids, training)
        key = common.fold_in(self._dropout_key(), _SAMPLE)
        rows = sample(grades, self.task.num_candidates, key)  # [B, K]
        chosen = {name: tf.gather(value, rows, batch_dims=1) for name, value in ids.items()}
        scores = self._of_lists(chosen, training)
        query = tf.repeat(tf.range(tf.shape(rows)[0]), tf.shape(rows)[1])
        places = tf.stack([query, tf.reshape(rows, [-1])], axis=1)  # [B K, 2]
        absent = tf.fill(tf.shape(grades), ABSENT)
        return tf.tensor_scatter_nd_update(absent, places, tf.reshape(scores, [-1]))

    def _of_lists(self, ids: Mapping[str, tf.Tensor], training: bool) -> tf.Tensor:
        """Return the scores [B, N] of int32 [B, N, S]."""
        _, count, length = common.shape_of(ids["input_mask"])
        flat = {name: tf.reshape(value, [-1, length]) for name, value in ids.items()}  # [B N, S]
        scores = tf.reshape(self._scores(flat, training), [-1, count])
        return tf.where(tf.reduce_any(ids["input_mask"] > 0, axis=-1), scores, ABSENT)

    def _scores(self, ids: Mapping[str, tf.Tensor], training: bool) -> tf.Tensor:
        """Return the scores [B] of int32 [B, S]."""
        outputs, key = self.encode(ids, training, pooled_only=True)
        return self.head(common.dropout(outputs["pooled_output"], self.task.dropout, key))[:, 0]

    def training_losses(self) -> tf_keras.losses.Loss:
        """Return the argument of `compile(loss=...)`."""
        return LOSSES[self.task.loss]()


def sample(grades: tf.Tensor, count: int, key: common.DropoutKey) -> tf.Tensor:
    """Return the candidates that a training step reads, int32 [B, min(count, N)].

    They are one that is not relevant, if there is one, then the relevant ones, then the others,
    both in an order that is a function of `key` and the place in the batch.

    Args:
      grades: float32 [B, N], 0 for candidates that are not relevant, -1 where there is none.
      count: the most candidates of a query.
      key: the key of the draws.
    """
    draws = _uniform(tf.shape(grades), key)
    is_other = tf.equal(grades, 0.0)
    best = tf.argmax(tf.where(is_other, draws, -1.0), axis=1)
    is_first = is_other & tf.one_hot(best, tf.shape(grades)[1], True, False)
    order = tf.where(grades < 0, -1.0, draws + tf.cast(grades > 0, tf.float32))
    size = grades.shape[1] or tf.shape(grades)[1]
    most = min(count, size) if isinstance(size, int) else tf.minimum(count, size)
    return tf.math.top_k(tf.where(is_first, 2.0, order), most).indices


def _uniform(shape: tf.Tensor, key: common.DropoutKey) -> tf.Tensor:
    """Return numbers in [0, 1), float32, the same under every compiler."""
    words = tf.cast(tf.bitcast(key[:2], tf.uint32), tf.uint64)
    both = tf.bitwise.bitwise_or(
        tf.bitwise.left_shift(words[0], tf.constant(32, tf.uint64)), words[1]
    )
    counter = tf.cast(tf.reshape(tf.range(tf.reduce_prod(shape)), shape), tf.uint64)
    bits = keyed_random.graph_bits(both, counter)
    return tf.cast(tf.bitwise.right_shift(bits, tf.constant(40, tf.uint64)), tf.float32) / 2.0**24
