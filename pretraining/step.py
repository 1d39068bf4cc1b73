"""One training step: the object that `strategy.run` gets on every replica."""

from collections.abc import Mapping

import tensorflow as tf

from albert_tf.encoder import INPUTS
from albert_tf.layers import common
from albert_tf.optimization import OPTIMIZERS, LinearWarmupLinearDecay
from albert_tf.optimization.adamw import AdamW
from albert_tf.pretrainer import AlbertPretrainer
from data import keyed
from pretraining.config import PretrainConfig
from pretraining.losses import SUMS, pretraining_sums

MODEL_INPUTS = (*INPUTS, "masked_lm_positions")


def make_optimizer(config: PretrainConfig) -> AdamW:
    """The optimizer of `config` with its warm-up and decay."""
    values = config.optimizer
    schedule = LinearWarmupLinearDecay(
        values.learning_rate, values.warmup_steps, config.schedule_steps
    )
    return OPTIMIZERS[values.name](
        schedule,
        weight_decay_rate=values.weight_decay_rate,
        beta_1=values.beta_1,
        beta_2=values.beta_2,
        epsilon=values.epsilon,
    )


class TrainStep:
    """Forward, backward, sum over replicas, clip, update.

    The loss is MLM + pair (paper section 3.1), each the mean over the global batch: counts are
    summed over the replicas first, then each replica differentiates its share of the sums, and the
    sum of the gradients is the gradient of the global mean.
    """

    RESULTS = (*SUMS, "grad_norm")

    def __init__(self, model: AlbertPretrainer, optimizer: AdamW, config: PretrainConfig) -> None:
        self.model, self.optimizer, self.config = model, optimizer, config
        self.has_pairs = config.objective.pair != "none"

    @tf.autograph.experimental.do_not_convert  # nothing to convert, but it would take seconds
    def __call__(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """One replica's batch -> `RESULTS`: the global sums, and the gradient's norm."""
        replica = tf.distribute.get_replica_context()
        counts = replica.all_reduce(
            "sum",
            tf.stack(
                [tf.reduce_sum(batch["masked_lm_weights"]), tf.reduce_sum(batch["pair_weight"])]
            ),
        )
        with tf.GradientTape() as tape:
            outputs = self.model(
                {name: batch[name] for name in MODEL_INPUTS},
                training=True,
                dropout_key=self._dropout_key(replica),
            )
            sums = pretraining_sums(outputs, batch)
            loss = tf.math.divide_no_nan(sums["mlm_loss"], counts[0])
            if self.has_pairs:
                loss += tf.math.divide_no_nan(sums["pair_loss"], counts[1])
        grad_norm = self._update(tape, loss, replica)
        names, values = zip(*sums.items(), strict=True)
        totals = tf.unstack(replica.all_reduce("sum", tf.stack(values)))
        return dict(zip(names, totals, strict=True)) | {"grad_norm": grad_norm}

    def _update(
        self, tape: tf.GradientTape, loss: tf.Tensor, replica: tf.distribute.ReplicaContext
    ) -> tf.Tensor:
        variables = self.model.trainable_variables
        both = zip(tape.gradient(loss, variables), variables, strict=True)
        # Without pairs the pooler has no gradient: it stays as it is, neither moved nor decayed.
        pairs = [(gradient, variable) for gradient, variable in both if gradient is not None]
        # The word table's gradient comes as slices from the lookup and dense from the MLM head: as
        # slices its norm would count rows that occur twice wrongly.
        gradients = [tf.convert_to_tensor(gradient) for gradient, _ in pairs]
        gradients = replica.all_reduce("sum", gradients)
        gradients, norm = tf.clip_by_global_norm(gradients, self.config.optimizer.clip_norm)
        variables = [variable for _, variable in pairs]
        self.optimizer.apply_gradients(
            zip(gradients, variables, strict=True), skip_gradients_aggregation=True
        )
        return norm

    def _dropout_key(self, replica: tf.distribute.ReplicaContext) -> tf.Tensor:
        """int32 [2], a function of (seed, step, replica)."""
        seed = keyed.stream_key(self.config.seed, keyed.DROPOUT) & 0x7FFFFFFF
        key = tf.stack([tf.constant(seed, tf.int32), tf.cast(self.optimizer.iterations, tf.int32)])
        replica_id = tf.cast(replica.replica_id_in_sync_group, tf.int32)
        return common.fold_in(key, replica_id)
