"""The training loop: restore, seek, run loops of steps, log, save."""

import tempfile
import time

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf import hardware
from albert_tf.errors import InputError
from albert_tf.pretrainer import AlbertPretrainer
from albert_tf.runs import RunDir
from data.input_pipeline import Records, training_batches
from pretraining.actions import TrainingLog
from pretraining.config import PretrainConfig
from pretraining.step import TrainStep, make_optimizer


def train(
    config: PretrainConfig,
    records: Records,
    run: RunDir,
    strategy: tf.distribute.Strategy,
    first_weights: list[np.ndarray] | None = None,
) -> AlbertPretrainer:
    """Trains until `config.loop.steps`; takes up where the run's last checkpoint is.

    The weights come from the run's own checkpoint, else from `first_weights`, else from scratch.
    Order, pairs, masks and dropout are functions of the seed and the step: the step is all there is
    to restore. Of several workers, each of which calls this, the chief writes the run.
    """
    writes = run if hardware.is_chief(strategy) else RunDir(tempfile.mkdtemp())
    loop = config.loop
    check_batch(config, strategy)
    tf_keras.utils.set_random_seed(config.seed)  # for the first weights alone
    with strategy.scope(), hardware.precision_policy(config.precision):
        model = AlbertPretrainer(config.model).create_weights()
        optimizer = make_optimizer(config)
        optimizer.build(model.trainable_variables)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    manager = tf.train.CheckpointManager(checkpoint, writes.checkpoints_path, loop.keep_checkpoints)
    if latest := tf.train.latest_checkpoint(run.checkpoints_path):
        checkpoint.restore(latest).assert_consumed()
        print(f"continuing at step {int(optimizer.iterations.numpy()):,} of {run.path}", flush=True)
    elif first_weights is not None:
        model.set_weights(first_weights)

    step = int(optimizer.iterations.numpy())
    iterator = iter(distributed_batches(config, records, strategy, step))
    run_steps = _loop_function(TrainStep(model, optimizer, config), strategy)
    with TrainingLog(writes, config, records.manifest, optimizer, step) as log:
        while step < loop.steps:
            # To the next multiple: a restart from any step comes back into the rhythm.
            count = min(loop.steps, step - step % loop.steps_per_loop + loop.steps_per_loop) - step
            start = time.monotonic()
            sums = {name: float(s) for name, s in run_steps(iterator, tf.constant(count)).items()}
            step += count
            log.write(step, count, sums, time.monotonic() - start)
            if step % loop.checkpoint_every == 0 or step == loop.steps:
                manager.save(checkpoint_number=step)
    return model


def check_batch(config: PretrainConfig, strategy: tf.distribute.Strategy) -> None:
    """Refuses a global batch that replicas, or the chunks of a replica, cannot share equally."""
    replicas, batch = strategy.num_replicas_in_sync, config.loop.global_batch_size
    if batch % replicas:
        raise InputError(
            "`loop.global_batch_size` must be a multiple of the number of replicas. "
            f"Received: {batch}, replicas: {replicas}."
        )
    chunks = config.model.rematerialize_chunks
    if batch // replicas % chunks:
        raise InputError(
            "`model.rematerialize_chunks` must divide the batch of a replica. "
            f"Received: {chunks} chunks, {batch // replicas} sequences."
        )


def distributed_batches(
    config: PretrainConfig, records: Records, strategy: tf.distribute.Strategy, start_step: int
) -> tf.distribute.DistributedDataset:
    """The stream from `start_step` on, each worker reading its own part of every global batch."""

    def of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return training_batches(
            records,
            config.objective,
            config.masking,
            config.loop.global_batch_size,
            config.seed,
            start_step,
            context.num_input_pipelines,
            context.input_pipeline_id,
            context.get_per_replica_batch_size(config.loop.global_batch_size),
        )

    return strategy.distribute_datasets_from_function(of_worker)


def _loop_function(
    train_step: TrainStep, strategy: tf.distribute.Strategy
) -> tf.types.experimental.PolymorphicFunction:
    """(iterator, number of steps) -> sums over the steps, all inside one `tf.function`."""

    def one_step(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        results = strategy.run(train_step, args=(batch,))
        # The sums are global already: the same on every replica.
        return {
            name: strategy.experimental_local_results(value)[0] for name, value in results.items()
        }

    @tf.function
    def run_steps(iterator: tf.data.Iterator, count: tf.Tensor) -> dict[str, tf.Tensor]:
        # One copy of the step in the graph: a second one, outside the loop, would be optimised
        # otherwise and round otherwise, and a restart would not be bit-equal.
        totals = {name: tf.zeros([]) for name in TrainStep.RESULTS}
        for _ in tf.range(count):
            results = one_step(next(iterator))
            totals = {name: total + results[name] for name, total in totals.items()}
        return totals

    return run_steps
