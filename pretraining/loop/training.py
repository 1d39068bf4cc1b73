"""The training loop: restore, seek, run loops of steps, check them, log, save."""

import sys
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.optimization import AdamW
from albert_tf.runtime import devices
from albert_tf.runtime.errors import InputError, reading, writing
from albert_tf.runtime.run_dir import RunDir
from albert_tf.training.checkpoints import Checkpoints
from albert_tf.training.metrics_log import writable_run
from data.pipeline.batches import Mixture, Records
from pretraining.loop.config import PretrainConfig
from pretraining.loop.divergence_guard import Guard
from pretraining.loop.runtime import Runtime
from pretraining.loop.selection import Evaluate, Selection
from pretraining.loop.stop_request import StopRequest
from pretraining.loop.train_step import Step, TrainStep, make_optimizer
from pretraining.loop.training_log import TrainingLog

MakeStep = Callable[[AlbertPretrainer, AdamW, PretrainConfig, int], Step]


def train(
    config: PretrainConfig,
    records: Records | Mixture,
    run: RunDir,
    runtime: Runtime,
    first_weights: list[np.ndarray] | None = None,
    evaluation: Callable[[AlbertPretrainer], Evaluate] | None = None,
    profile: bool = False,
    make_step: MakeStep = TrainStep,
) -> AlbertPretrainer:
    """Train until `config.loop.steps`, resuming from the run's last checkpoint if there is one.

    The weights come from the run's own checkpoint, else from `first_weights`, else from scratch.
    Order, pairs, masks and dropout are functions of the seed and the step, so the step is enough to
    restore them. With several workers, every worker calls this function and the chief writes the
    run.

    Args:
      config: the resolved configuration.
      records: the training records.
      run: the run's folder.
      runtime: computes the steps.
      first_weights: the initial weights of a run without a checkpoint.
      evaluation: returns, for the model, the function that is called every
        `config.evaluation.every` steps to evaluate it.
      profile: write a TensorBoard profile of the second loop of steps.
      make_step: the step, as `TrainStep`.

    Returns:
      The trained model.

    Raises:
      InputError: the replicas cannot share a batch, no checkpoint can be read, or training
        diverged.
      SystemExit: SIGTERM or Ctrl-C arrived. The run is saved, and the status is 128 + the signal.
    """
    with writing(run.path):
        return _Training(
            config, records, run, runtime, first_weights, evaluation, profile, make_step
        ).run_all()


class _Training:
    """The part of a training run that one process executes."""

    def __init__(
        self,
        config: PretrainConfig,
        records: Records | Mixture,
        run: RunDir,
        runtime: Runtime,
        first_weights: list[np.ndarray] | None,
        evaluation: Callable[[AlbertPretrainer], Evaluate] | None,
        profile: bool,
        make_step: MakeStep,
    ) -> None:
        check_batch(config, runtime.replicas)
        self.config, self.records, self.run, self.runtime = config, records, run, runtime
        self.writes = writable_run(run, runtime.is_chief)
        tf_keras.utils.set_random_seed(config.seed)  # only for the initial weights
        with runtime.strategy.scope(), devices.precision_policy(config.precision):
            self.model = AlbertPretrainer(config.model, heads=config.heads).create_weights()
            self.optimizer = make_optimizer(config)
            self.optimizer.build(self.model.trainable_variables)
        self.guard = Guard(config.guard)
        state = tf.train.Checkpoint(model=self.model, optimizer=self.optimizer, guard=self.guard)
        self.checkpoints = Checkpoints(
            state, run.checkpoints_path, self.writes.checkpoints_path, config.loop.keep_checkpoints
        )
        restored = self.checkpoints.restore()
        if restored is None and first_weights is not None:
            self.model.set_weights(first_weights)
        self.is_new = restored is None
        if restored is not None:
            print(f"continuing at step {restored:,} of {run.path}", flush=True)
        self.step = restored or 0
        evaluate = evaluation(self.model) if evaluation else None
        self.selection = Selection(config, self.model, evaluate, run, self.writes)
        runtime.start(make_step(self.model, self.optimizer, config, runtime.parallel_parts))
        self.profile = profile

    def run_all(self) -> AlbertPretrainer:
        """Run the remaining loops of steps and return the model."""
        if self.is_new:
            self._save()  # the checkpoint to restore if the run diverges early
        with (
            StopRequest() as stop,
            TrainingLog(
                self.writes, self.config, self.records.manifest, self.optimizer, self.runtime
            ) as log,
        ):
            self.guard.restart(self.step, self.writes)
            self._rewind(log)
            self._export()  # an interrupted run may have missed its export
            while self.step < self.config.loop.steps and not self.selection.is_exhausted:
                self._loop(log)
                if self.runtime.any_process(bool(stop.signal)):
                    # The guard must not restore this checkpoint, which an uninterrupted run would
                    # not have.
                    if self.step != (last_good := int(self.guard.last_good.numpy())):
                        self.runtime.to_variables()
                        self.checkpoints.save(self.step, also_keep=last_good)
                    self._export()
                    if self.runtime.is_chief:
                        print(f"stopped, saved at step {self.step:,}", flush=True)
                    sys.exit(128 + (stop.signal or 15))
        if self.selection.is_exhausted and self.runtime.is_chief:
            print(self.selection.early_stop_message(self.step), flush=True)
        return self.model

    def _loop(self, log: TrainingLog) -> None:
        loop = self.config.loop
        # Up to the next multiple, so that a run resumed at any step has the same loops again.
        end = min(loop.steps, self.step - self.step % loop.steps_per_loop + loop.steps_per_loop)
        count, start = end - self.step, time.monotonic()
        with log.profiled(self.profile), reading(self.records.folder):
            totals, skipped = self.runtime.run_steps(self.batches, count)
            sums = {name: float(total) for name, total in totals.items()}
        seconds = time.monotonic() - start
        self.step = end
        if self.guard.check(end, skipped, self.writes, self._numbers):
            self.step = self.guard.roll_back(end, self.checkpoints.restore)
            self.runtime.from_variables()
            self.checkpoints.drop(lambda later: later > self.step)
            self._rewind(log)
            return
        if self.selection.is_due(end):
            self.runtime.to_variables()
        log.write(end, count, sums, seconds, self.selection.evaluate_if_due(end))
        is_end = end == loop.steps or self.selection.is_exhausted
        # Not within a streak of skipped steps, because the guard would restore that checkpoint.
        if is_end or (end % loop.checkpoint_every == 0 and not self.guard.is_in_streak):
            self._save()

    def _save(self) -> None:
        self.runtime.to_variables()
        self.guard.last_good.assign(self.step)
        self.checkpoints.save(self.step)
        self.selection.drop_older()
        self._export()

    def _export(self) -> None:
        if self.step and self.runtime.is_chief:
            self.selection.export(self.step)

    def _rewind(self, log: TrainingLog) -> None:
        """Set log, evaluations and batches to `self.step`."""
        log.rewind(self.step)
        self.selection.rewind(self.run.metrics(), self.step)
        first = self.step + int(self.guard.offset.numpy())
        self.batches = self.runtime.batches(self.config, self.records, first)

    def _numbers(self, batch: int) -> list[tuple[str, int, int]]:
        size = self.config.loop.global_batch_size
        return self.records.numbers(self.config.seed, batch * size, size)


def check_batch(config: PretrainConfig, replicas: int) -> None:
    """Check that replicas, accumulation steps and chunks divide the global batch.

    Raises:
      InputError: one of them does not.
    """
    batch = config.loop.global_batch_size
    if batch % replicas:
        raise InputError(
            "`loop.global_batch_size` must be a multiple of the number of replicas. "
            f"Received: {batch}, replicas: {replicas}."
        )
    parts, chunks = config.loop.accumulation_steps, config.model.rematerialize_chunks
    if batch // replicas % parts:
        raise InputError(
            "`loop.accumulation_steps` must divide the batch of a replica. "
            f"Received: {parts} steps, {batch // replicas} sequences."
        )
    if batch // replicas // parts % chunks:
        raise InputError(
            "`model.rematerialize_chunks` must divide the batch of a replica or, with "
            f"`loop.accumulation_steps`, a part of it. Received: {chunks} chunks, "
            f"{batch // replicas // parts} sequences."
        )
