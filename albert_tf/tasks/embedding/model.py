"""The model of embeddings: the pooled hidden states of a text, projected and normalized."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import tensorflow as tf
import tf_keras

from albert_tf.models.encoder import INPUTS
from albert_tf.models.layers import common
from albert_tf.runtime.bounds import (
    FINITE,
    MOST_PIECES,
    NOT_NEGATIVE,
    POSITIVE,
    at_least,
    at_most,
    between,
    one_of,
)
from albert_tf.runtime.errors import ConfigError
from albert_tf.tasks.embedding import losses
from albert_tf.tasks.kind import POOLINGS
from albert_tf.tasks.task_model import TaskModel, head_dense
from albert_tf.tasks.task_settings import TaskSettings

# Name of `task.loss` -> the loss of a run with these settings.
LOSSES: dict[str, Callable[["EmbeddingSettings"], tf_keras.losses.Loss]] = {
    "in_batch": lambda task: losses.InBatchNegatives(task.temperature, task.symmetric),
    "cosine": lambda task: losses.CosineError(task.lowest_score, task.highest_score),
    "cosent": lambda task: losses.CoSENT(task.temperature),
    "simcse": lambda task: losses.InBatchNegatives(task.temperature),
    "teacher_cosine": lambda task: losses.TeacherCosine(),
    "teacher_squared": lambda task: losses.TeacherSquared(),
}


@dataclasses.dataclass(frozen=True)
class EmbeddingSettings(TaskSettings):
    """The `task` section of the config.json of an embedding.

    Attributes:
      seq_length: the maximum pieces of a text, special pieces included.
      pooling: `mean`, the mean of the last layer over the pieces of a text, special pieces
        included; or `cls`, the encoder's pooled output.
      projection: the width of the vectors after a linear map; 0 for the encoder's own, without one.
      query_prompt, passage_prompt: what is put before the first text of a pair or a query, and
        before the other texts of a pair or the documents of a search. A single text has neither.
      loss: see `albert_tf.tasks.embedding.losses`. `in_batch`, in-batch negatives; of scored pairs,
        `cosine`, the squared error of the cosine, or `cosent`, a loss of their order; `simcse`,
        in-batch negatives of the same text twice, with other dropout (arXiv 2104.08821);
        `teacher_cosine` and `teacher_squared`, the distance to a teacher's vectors. By default the
        first one that the training data allows.
      temperature: what cosines are divided by in the losses of a whole batch.
      symmetric: True to add to `in_batch` the loss of finding the first text from the second.
      dropout: the rate before the projection.
      lowest_score, highest_score: the scores for which `cosine` wants 0 and 1; those of the
        training data.
    """

    HEAD = ("projection",)
    FROM_DATA = ("lowest_score", "highest_score")

    seq_length: Annotated[int, at_least(3, "for a piece with its special ones"), MOST_PIECES] = 128
    pooling: Annotated[str, one_of(*POOLINGS)] = "mean"
    projection: Annotated[int, NOT_NEGATIVE, at_most(2**20)] = 0
    query_prompt: str = ""
    passage_prompt: str = ""
    loss: Annotated[str, one_of(*LOSSES)] = "in_batch"
    temperature: Annotated[float, POSITIVE] = 0.05
    symmetric: bool = False
    dropout: Annotated[float, between("[0, 1)")] = 0.0
    lowest_score: Annotated[float, FINITE] = 0.0
    highest_score: Annotated[float, FINITE] = 1.0
    kind: str = "embedding"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lowest_score >= self.highest_score:
            raise ConfigError(
                "`task.lowest_score` must be below `task.highest_score`. Received: "
                f"{self.lowest_score} and {self.highest_score}."
            )

    @property
    def is_contrastive(self) -> bool:
        """True if the other texts of a batch are negatives."""
        return self.loss in ("in_batch", "simcse")


@tf_keras.saving.register_keras_serializable("albert_tf")
class EmbeddingModel(TaskModel):
    """A model of embeddings: pooling -> dropout -> projection, if there is one -> length 1.

    Inputs: the encoder's dict of int32 [B, S], or [B, P, S] for P texts of each example; a row
    whose `input_mask` is 0 is no text. Output: vectors float32 [B, D] or [B, P, D]. In training,
    `simcse` reads each text twice, and its output is [B, 2, D]; that of `teacher_squared` is not
    normalized.

    Attributes:
      is_untrained: True for an encoder that was trained to predict masked words only.
    """

    task_class = EmbeddingSettings
    task: EmbeddingSettings
    is_untrained = False
    has_batch_loss = True

    def new_head(self) -> tf_keras.layers.Layer | None:
        """Return the dense layer of the projection, if there is one."""
        if not self.task.projection:
            return None
        return head_dense(self.task.projection, "head", use_bias=False)

    @property
    def dimension(self) -> int:
        """D, the width of the vectors."""
        return self.task.projection or self.encoder.config.hidden_size

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """Return the vectors; see the class for shapes."""
        return self._outputs(inputs, training, training)

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Compute the loss of `evaluate` and of validation data, as in training but for dropout."""
        inputs, targets, weights = tf_keras.utils.unpack_x_y_sample_weight(data)
        outputs = self._outputs(inputs, training=False, for_loss=True)
        self.compute_loss(inputs, targets, outputs, weights)
        return self.compute_metrics(inputs, targets, outputs, weights)

    def _outputs(
        self, inputs: Mapping[str, tf.Tensor], training: bool, for_loss: bool
    ) -> tf.Tensor:
        ids = {name: inputs[name] for name in INPUTS}
        if for_loss and self.task.loss == "simcse":
            ids = {name: tf.stack([value, value], axis=1) for name, value in ids.items()}
        if ids["input_mask"].shape.rank == 2:
            return self._vectors(ids, training, for_loss)
        # The graph of `predict` that has seen both ranks knows neither.
        is_known = ids["input_mask"].shape.rank == 3
        shape = (common.shape_of if is_known else tf.shape)(ids["input_mask"])
        flat = {name: tf.reshape(value, [-1, shape[-1]]) for name, value in ids.items()}  # [B P, S]
        vectors = self._vectors(flat, training, for_loss)
        if is_known:
            return tf.reshape(vectors, [-1, shape[1], vectors.shape[-1]])
        return tf.reshape(vectors, tf.concat([shape[:-1], vectors.shape[-1:]], 0))

    def _vectors(
        self, inputs: Mapping[str, tf.Tensor], training: bool, for_loss: bool
    ) -> tf.Tensor:
        outputs, key = self.encode(inputs, training, pooled_only=self.task.pooling == "cls")
        vectors = self.projected(outputs, inputs["input_mask"], key)
        is_raw = for_loss and self.task.loss == "teacher_squared"
        return vectors if is_raw else common.normalized(vectors)

    def projected(
        self,
        outputs: Mapping[str, tf.Tensor],
        mask: tf.Tensor,
        key: common.DropoutKey | None = None,
    ) -> tf.Tensor:
        """Return the vectors before they are normalized, float32 [B, D].

        Args:
          outputs: those of the encoder.
          mask: its input `input_mask`, [B, S].
          key: the key of the dropout, if any.
        """
        if self.task.pooling == "cls":
            vectors = outputs["pooled_output"]
        else:
            vectors = common.mean_of(outputs["sequence_output"], mask)
        vectors = common.dropout(vectors, self.task.dropout, key)
        return vectors if self.head is None else self.head(vectors)

    def training_losses(self) -> tf_keras.losses.Loss:
        """Return the argument of `compile(loss=...)`."""
        return LOSSES[self.task.loss](self.task)
