"""One training step: the object that `strategy.run` calls on every replica."""

import functools
from collections.abc import Mapping, Sequence
from typing import Protocol

import tensorflow as tf

from albert_tf.models.config import AlbertConfig
from albert_tf.models.encoder import INPUTS
from albert_tf.models.head import POOLED_OUTPUT
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.optimization import OPTIMIZERS, LinearWarmupLinearDecay
from albert_tf.optimization.adamw import AdamW
from albert_tf.runtime import keyed_random
from albert_tf.training.step import (
    accumulated,
    num_parts,
    parallel_parts,
    split_batch,
    step_dropout_key,
)
from pretraining.loop.config import PretrainConfig
from pretraining.loop.losses import pretraining_sums

MODEL_INPUTS = (*INPUTS, "masked_lm_positions")
# A part has at least SMALLEST_PART pieces, and one piece for every PARAMETERS_PER_PIECE parameters.
# With fewer, products mostly wait for their weights, and the gradients, which each part holds
# separately, take more memory than the activations.
SMALLEST_PART, PARAMETERS_PER_PIECE = 512, 25_000


def make_optimizer(config: PretrainConfig) -> AdamW:
    """Return the optimizer of `config` with its warm-up and decay."""
    values = config.optimizer
    schedule = LinearWarmupLinearDecay(
        values.learning_rate, values.warmup_steps, config.schedule_steps, config.constant_steps
    )
    return OPTIMIZERS[values.name](
        schedule,
        weight_decay_rate=values.weight_decay_rate,
        beta_1=values.beta_1,
        beta_2=values.beta_2,
        epsilon=values.epsilon,
    )


def parts_of_batch(
    model: AlbertConfig,
    rows: int,
    length: int,
    at_most: int,
    smallest_part: int = SMALLEST_PART,
) -> int:
    """Return how many equal parts of [rows, length] pieces a CPU computes in parallel."""
    if model.rematerialize_chunks > 1:
        return 1
    smallest = max(smallest_part, model.param_count() // PARAMETERS_PER_PIECE)
    return num_parts(rows, min(at_most, rows * length // smallest))


class Step(Protocol):
    """Updates the weights for a batch.

    Attributes:
      results: the names of what it returns, `skipped` among them.
    """

    results: Sequence[str]

    def __call__(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return float32 scalars."""


class TrainStep:
    """A step: forward, backward, sum over replicas, clip, update.

    The loss is MLM + pair (paper section 3.1), each the mean over the global batch. The counts are
    summed over the replicas first. Each replica then differentiates its share of the sums, so the
    sum of the gradients is the gradient of the global mean. The same holds for the sum over the
    parts of a batch when gradients are accumulated.

    If the loss or the gradient is not finite, only the number of steps is updated.

    Args:
      model: the model to train.
      optimizer: built for the model's variables.
      config: the run's configuration.
      side_by_side: the largest number of parts of the batch that a CPU computes in parallel. Small
        models scale better this way than by dividing each operation between the cores
        (docs/findings.md).
      smallest_part: the smallest number of pieces of such a part.

    Attributes:
      counted: the features of a batch that are counted for the means, one of each objective.
      sums: the names of the sums of all objectives.
      results: the names of what a step returns.
    """

    def __init__(
        self,
        model: AlbertPretrainer,
        optimizer: AdamW,
        config: PretrainConfig,
        side_by_side: int = 1,
        smallest_part: int = SMALLEST_PART,
    ) -> None:
        self.model, self.optimizer, self.config = model, optimizer, config
        self.side_by_side, self.smallest_part = side_by_side, smallest_part
        self._objectives = config.objectives
        self.counted = tuple(objective.weights for objective in self._objectives)
        self.sums = tuple(name for objective in self._objectives for name in objective.sums)
        self.results: Sequence[str] = (*self.sums, "grad_norm", "skipped")
        # Heads without an objective have no gradient, nor has the pooler without a head; weight
        # decay must not change them.
        trained = [objective.head for objective in config.objectives if objective.is_trained]
        idle = [getattr(model, head.layer) for head in config.heads if head not in trained]
        if all(head.input != POOLED_OUTPUT for head in trained):
            idle.append(model.encoder.pooler)
        idle_ids = {id(variable) for part in idle for variable in part.trainable_variables}
        self.variables = [v for v in model.trainable_variables if id(v) not in idle_ids]

    @tf.autograph.experimental.do_not_convert  # nothing to convert, but trying takes seconds
    def __call__(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return `results` for a replica's batch: global sums, gradient norm, and 1 if skipped.

        If the step was skipped, the other results are 0.
        """
        replica = tf.distribute.get_replica_context()
        all_reduce = functools.partial(replica.all_reduce, "sum")
        counts = all_reduce(tf.stack([tf.reduce_sum(batch[name]) for name in self.counted]))
        sums, gradients = self.gradients(batch, counts, replica.replica_id_in_sync_group)
        return self.update(all_reduce(sums), all_reduce(gradients))

    def gradients(
        self, batch: Mapping[str, tf.Tensor], counts: tf.Tensor, replica: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return the sums, float32 [S], and gradients of a replica's batch.

        `counts`, float32 [2], holds the sums of `counted` over the replicas.
        """
        seed = keyed_random.stream_key(self.config.seed, keyed_random.DROPOUT) & 0x7FFFFFFF
        key = step_dropout_key(seed, self.optimizer.iterations, replica)
        return self._accumulated(batch, counts, key)

    def update(self, sums: tf.Tensor, gradients: list[tf.Tensor]) -> dict[str, tf.Tensor]:
        """Update the weights from the sums and gradients of all replicas; return `results`."""
        norm = tf.linalg.global_norm(gradients)
        is_finite = tf.math.is_finite(norm + tf.reduce_sum(sums))
        self._apply(gradients, tf.where(is_finite, norm, float("nan")))
        finite_values = tf.unstack(tf.where(is_finite, tf.concat([sums, [norm]], axis=0), 0.0))
        skipped = tf.cast(~is_finite, tf.float32)
        return dict(zip(self.results, (*finite_values, skipped), strict=True))

    def _accumulated(
        self, batch: Mapping[str, tf.Tensor], counts: tf.Tensor, key: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return the sums, float32 [S], and gradients of a batch, computed part after part."""
        zeros = (
            tf.zeros([len(self.sums)]),
            [tf.zeros(variable.shape) for variable in self.variables],
        )
        parts = self.config.loop.accumulation_steps
        compute = functools.partial(self._in_parts, counts=counts)
        return accumulated(compute, dict(batch), key, parts, zeros)

    def _in_parts(
        self, batch: Mapping[str, tf.Tensor], key: tf.Tensor, counts: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return sums and gradients; parallel parts use the dropout masks of the whole batch."""
        parts = 1
        if self.side_by_side > 1:
            rows, length = batch["input_word_ids"].shape
            parts = parts_of_batch(
                self.config.model, rows, length, self.side_by_side, self.smallest_part
            )
        if parts == 1:
            return self._part(batch, counts, key)
        split = split_batch(dict(batch), parts)

        def compute(part: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
            batch_part = {name: value[part] for name, value in split.items()}
            return self._part(batch_part, counts, tf.concat([key, [part]], 0))

        like = tf.TensorSpec([len(self.sums)]), [tf.TensorSpec(v.shape) for v in self.variables]
        first, *others = parallel_parts(compute, parts, like)
        for other in others:  # in a fixed order, so that every run gives the same sum
            first = tf.nest.map_structure(tf.add, first, other)
        return first

    def _part(
        self, batch: Mapping[str, tf.Tensor], counts: tf.Tensor, key: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return the sums and gradients of a part."""
        with tf.GradientTape() as tape:
            outputs = self.model(
                {name: batch[name] for name in MODEL_INPUTS},
                training=True,
                dropout_key=key,
                labels=batch,
                kernels=self.config.loop.kernels,
            )
            sums = pretraining_sums(self._objectives, outputs, batch)
            loss = self._loss(sums, counts)
        # The word table's gradient is made of slices from the lookup and a dense part from the MLM
        # head. As slices, its norm would be wrong for rows that occur twice.
        gradients = tape.gradient(loss, self.variables)
        return tf.stack([sums[name] for name in self.sums]), list(
            map(tf.convert_to_tensor, gradients)
        )

    def _loss(self, sums: Mapping[str, tf.Tensor], counts: tf.Tensor) -> tf.Tensor:
        """Return the sum over the objectives of their mean losses times their factors."""
        config = self.config
        parts = zip(config.objectives, config.objective.factors, tf.unstack(counts), strict=True)
        means = [
            factor * tf.math.divide_no_nan(sums[objective.sums[0]], count)
            for objective, factor, count in parts
            if objective.is_trained
        ]
        return tf.add_n(means)

    def _apply(self, gradients: list[tf.Tensor], norm: tf.Tensor) -> None:
        """Clip and apply the gradients.

        A norm of NaN turns all gradients into NaN, which the optimizer skips.
        """
        gradients, _ = tf.clip_by_global_norm(gradients, self.config.optimizer.clip_norm, norm)
        self.optimizer.apply_gradients(
            zip(gradients, self.variables, strict=True), skip_gradients_aggregation=True
        )
