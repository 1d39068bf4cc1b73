"""One training step: the object that `strategy.run` gets on every replica."""

from collections.abc import Mapping

import tensorflow as tf

from albert_tf.models.config import AlbertConfig
from albert_tf.models.encoder import INPUTS
from albert_tf.models.layers import common
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.optimization import OPTIMIZERS, LinearWarmupLinearDecay
from albert_tf.optimization.adamw import AdamW
from albert_tf.runtime import keyed_random
from albert_tf.training.step import (
    num_parts,
    parallel_parts,
    split_batch,
    step_dropout_key,
    sum_over_parts,
)
from pretraining.loop.config import PretrainConfig
from pretraining.loop.losses import SUMS, pretraining_sums

MODEL_INPUTS = (*INPUTS, "masked_lm_positions")
# A part has at least so many pieces: with fewer, products mostly wait for their weights, and the
# gradients, of which each part has its own, take more memory than the activations.
SMALLEST_PART, PARAMETERS_PER_PIECE = 512, 25_000


def make_optimizer(config: PretrainConfig) -> AdamW:
    """The optimizer of `config` with its warm-up and decay."""
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


def parts_of_batch(model: AlbertConfig, rows: int, length: int, at_most: int) -> int:
    """In how many equal parts side by side a CPU computes [rows, length] pieces."""
    if model.rematerialize_chunks > 1:
        return 1
    smallest = max(SMALLEST_PART, model.param_count() // PARAMETERS_PER_PIECE)
    return num_parts(rows, min(at_most, rows * length // smallest))


class TrainStep:
    """Forward, backward, sum over replicas, clip, update.

    The loss is MLM + pair (paper section 3.1), each the mean over the global batch: counts are
    summed over the replicas first, then each replica differentiates its share of the sums, and the
    sum of the gradients is the gradient of the global mean. So is the sum over the parts of a batch
    when gradients are accumulated.

    Where the loss or the gradient is not finite nothing is updated but the number of steps.

    Args:
      side_by_side: parts of the batch that a CPU computes at once, at most: small models scale so
        better than by sharing each operation between the cores (docs/findings.md).
    """

    RESULTS = (*SUMS, "grad_norm", "skipped")

    def __init__(
        self,
        model: AlbertPretrainer,
        optimizer: AdamW,
        config: PretrainConfig,
        side_by_side: int = 1,
    ) -> None:
        self.model, self.optimizer, self.config = model, optimizer, config
        self.side_by_side = side_by_side
        self.has_pairs = config.objective.pair != "none"
        # Without pairs the pooler has no gradient: it stays as it is, neither moved nor decayed.
        idle = () if self.has_pairs else (model.encoder.pooler, model.pair_head)
        idle_ids = {id(variable) for part in idle for variable in part.trainable_variables}
        self.variables = [v for v in model.trainable_variables if id(v) not in idle_ids]

    @tf.autograph.experimental.do_not_convert  # nothing to convert, but it would take seconds
    def __call__(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """One replica's batch -> `RESULTS`: the global sums, the gradient's norm, and 1 if skipped.

        Of a step that was skipped the others are 0.
        """
        replica = tf.distribute.get_replica_context()
        counts = replica.all_reduce(
            "sum",
            tf.stack(
                [tf.reduce_sum(batch["masked_lm_weights"]), tf.reduce_sum(batch["pair_weight"])]
            ),
        )
        seed = keyed_random.stream_key(self.config.seed, keyed_random.DROPOUT) & 0x7FFFFFFF
        key = step_dropout_key(seed, self.optimizer.iterations)
        sums, gradients = self._accumulated(batch, counts, key)
        sums, gradients = replica.all_reduce("sum", sums), replica.all_reduce("sum", gradients)
        norm = tf.linalg.global_norm(gradients)
        is_finite = tf.math.is_finite(norm + tf.reduce_sum(sums))
        self._update(gradients, tf.where(is_finite, norm, float("nan")))
        kept = tf.unstack(tf.where(is_finite, tf.concat([sums, [norm]], axis=0), 0.0))
        skipped = tf.cast(~is_finite, tf.float32)
        return dict(zip(self.RESULTS, (*kept, skipped), strict=True))

    def _accumulated(
        self, batch: Mapping[str, tf.Tensor], counts: tf.Tensor, key: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The sums, float32 [6], and gradients of a replica's batch, computed part after part."""
        parts = self.config.loop.accumulation_steps
        if parts == 1:
            return self._in_parts(batch, counts, key)
        split = split_batch(dict(batch), parts)

        def compute(part: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
            batch_part = {name: value[part] for name, value in split.items()}
            return self._in_parts(batch_part, counts, common.fold_in(key, part))

        zeros = tf.zeros([len(SUMS)]), [tf.zeros(variable.shape) for variable in self.variables]
        return sum_over_parts(compute, 0, parts, zeros)

    def _in_parts(
        self, batch: Mapping[str, tf.Tensor], counts: tf.Tensor, key: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The same in parts side by side; dropout's masks are those of the whole batch."""
        parts = 1
        if self.side_by_side > 1:  # of several workers' batches the rows are not known
            rows, length = batch["input_word_ids"].shape
            parts = parts_of_batch(self.config.model, rows, length, self.side_by_side)
        if parts == 1:
            return self._part(batch, counts, key)
        split = split_batch(dict(batch), parts)

        def compute(part: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
            batch_part = {name: value[part] for name, value in split.items()}
            return self._part(batch_part, counts, tf.concat([key, [part]], 0))

        like = tf.TensorSpec([len(SUMS)]), [tf.TensorSpec(v.shape) for v in self.variables]
        first, *others = parallel_parts(compute, parts, like)
        for other in others:  # in order, so that each run adds up the same
            first = tf.nest.map_structure(tf.add, first, other)
        return first

    def _part(
        self, batch: Mapping[str, tf.Tensor], counts: tf.Tensor, key: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """counts: float32 [2], predictions and pairs of the whole global batch."""
        with tf.GradientTape() as tape:
            outputs = self.model(
                {name: batch[name] for name in MODEL_INPUTS},
                training=True,
                dropout_key=key,
                labels=batch,
            )
            sums = pretraining_sums(outputs, batch)
            loss = tf.math.divide_no_nan(sums["mlm_loss"], counts[0])
            if self.has_pairs:
                loss += tf.math.divide_no_nan(sums["pair_loss"], counts[1])
        # The word table's gradient comes as slices from the lookup and dense from the MLM head: as
        # slices its norm would count rows that occur twice wrongly.
        gradients = tape.gradient(loss, self.variables)
        return tf.stack([sums[name] for name in SUMS]), list(map(tf.convert_to_tensor, gradients))

    def _update(self, gradients: list[tf.Tensor], norm: tf.Tensor) -> None:
        """A norm of NaN makes NaN of all gradients, which the optimizer leaves aside."""
        gradients, _ = tf.clip_by_global_norm(gradients, self.config.optimizer.clip_norm, norm)
        self.optimizer.apply_gradients(
            zip(gradients, self.variables, strict=True), skip_gradients_aggregation=True
        )
