"""Our own step: the same `TrainStep` that `pretraining.train` runs."""

import tensorflow as tf
import tf_keras

from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime import devices
from benchmarks.systems import CLIP_NORM, LEARNING_RATE, WEIGHT_DECAY, Step
from benchmarks.workloads import Workload, batch_of
from pretraining.loop.config import LoopConfig, OptimizerConfig, PretrainConfig
from pretraining.loop.train_step import TrainStep, make_optimizer, parts_of_batch


def albert(workload: Workload, precision: str, jit: bool) -> Step:
    """Build the step of AlbertPretrainer with the workload's model."""
    threads = tf.config.threading.get_inter_op_parallelism_threads() or 1
    parts = parts_of_batch(workload.model, workload.batch_size, workload.seq_length, threads)
    devices.divide_cores("cpu", parts, threads)
    tf_keras.mixed_precision.set_global_policy(precision)
    config = PretrainConfig(
        model=workload.model,
        optimizer=OptimizerConfig(
            name="adamw",
            learning_rate=LEARNING_RATE,
            warmup_steps=0,
            weight_decay_rate=WEIGHT_DECAY,
            clip_norm=CLIP_NORM,
        ),
        loop=LoopConfig(steps=1_000_000),
    )
    strategy = devices.strategy("cpu")
    with strategy.scope():
        model = AlbertPretrainer(config.model).create_weights()
        optimizer = make_optimizer(config)
        optimizer.build(model.trainable_variables)
    train_step = TrainStep(model, optimizer, config, devices.num_parallel_parts(strategy))
    batch = {name: tf.constant(value) for name, value in batch_of(workload).items()}

    @tf.function(jit_compile=jit)
    def step(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        sums = strategy.run(train_step, args=(batch,))
        return sums["mlm_loss"] / sums["mlm_count"] + sums["pair_loss"] / sums["pair_count"]

    return lambda: float(step(batch))


def bert(workload: Workload, precision: str, jit: bool) -> Step:
    """Build the same step with BERT's shape."""
    return albert(workload.as_bert(), precision, jit)
