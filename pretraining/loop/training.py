"""The training loop: run steps, check them, evaluate, log, save, stop."""

import json
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.optimization import AdamW
from albert_tf.runtime import devices, settings
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
    """Train until `config.loop.steps`, resuming from the last checkpoint, and return the model.

    With several workers, every worker calls this function and the chief writes the run. With
    `profile`, the second loop of steps is profiled. The other arguments are those of
    `TrainingState`.

    Raises:
      InputError: no checkpoint can be read, or training diverged.
      SystemExit: SIGTERM or Ctrl-C arrived. The run is saved, and the status is 128 + the signal.
    """
    loop = config.loop
    with writing(run.path):
        state = TrainingState(config, records, run, runtime, first_weights, evaluation, make_step)
        selection, guard, log = state.selection, state.guard, state.log
        with StopRequest() as stop, log:
            state.rewind()
            while state.step < loop.steps and not selection.is_exhausted:
                # Up to the next multiple, so that a run resumed at any step has the same loops.
                count = loop.steps_per_loop - state.step % loop.steps_per_loop
                count, start = min(count, loop.steps - state.step), time.monotonic()
                with log.profiled(profile), reading(records.folder):
                    sums, skipped = runtime.run_steps(state.batches, count)
                seconds = time.monotonic() - start
                state.step += count
                if guard.check(state.step, skipped, state.writes, state.numbers):
                    state.roll_back()
                else:
                    heldout = state.evaluate_if_due()
                    log.write(state.step, count, sums, seconds, heldout)
                    state.save_if_due()
                if runtime.any_process(bool(stop.signal)):
                    state.save_and_exit(stop.signal)
        if selection.is_exhausted and runtime.is_chief:
            print(selection.early_stop_message(state.step), flush=True)
    return state.model


class TrainingState:
    """The state of a run: its step, and with it the weights, the batches and the log.

    The weights come from the run's own checkpoint, else from `first_weights`, else from scratch.
    Order, pairs, masks and dropout are functions of the seed and the step, so the step is enough to
    restore them.

    Args:
      config: the resolved configuration.
      records: the training records.
      run: the run's folder.
      runtime: computes the steps.
      first_weights: the initial weights of a run without a checkpoint.
      evaluation: returns, for the model, the function that is called every
        `config.evaluation.every` steps to evaluate it.
      make_step: the step, as `TrainStep`.
    """

    def __init__(
        self,
        config: PretrainConfig,
        records: Records | Mixture,
        run: RunDir,
        runtime: Runtime,
        first_weights: list[np.ndarray] | None,
        evaluation: Callable[[AlbertPretrainer], Evaluate] | None,
        make_step: MakeStep,
    ) -> None:
        self.config, self.records, self.run, self.runtime = config, records, run, runtime
        self.writes = writable_run(run, runtime.is_chief)
        tf_keras.utils.set_random_seed(config.seed)  # only for the initial weights
        with runtime.strategy.scope(), devices.precision_policy(config.precision):
            self.model = AlbertPretrainer(config.model, heads=config.heads).create_weights()
            optimizer = make_optimizer(config)
            optimizer.build(self.model.trainable_variables)
        self.guard = Guard(config.guard)
        tracked = tf.train.Checkpoint(model=self.model, optimizer=optimizer, guard=self.guard)
        keep, target = config.loop.keep_checkpoints, self.writes.checkpoints_path
        self.checkpoints = Checkpoints(tracked, run.checkpoints_path, target, keep)
        restored = self.checkpoints.restore()
        if restored is None and first_weights is not None:
            self.model.set_weights(first_weights)
        if restored is not None:
            print(f"continuing at step {restored:,} of {run.path}", flush=True)
        self.step = restored or 0
        self._require_agreement()
        evaluate = evaluation(self.model) if evaluation else None
        self.selection = Selection(config, self.model, evaluate, run, self.writes)
        runtime.start(make_step(self.model, optimizer, config, runtime.parallel_parts))
        self.log = TrainingLog(self.writes, config, records.manifest, optimizer, runtime)
        if restored is None:
            self._save()  # the checkpoint to restore if the run diverges early
        self.guard.restart(self.step, self.writes)

    def rewind(self) -> None:
        """Set log, evaluations and batches to `step`; complete an interrupted export."""
        self.log.rewind(self.step)
        self.selection.rewind(self.run.metrics(), self.step)
        first = self.step + int(self.guard.offset.numpy())
        self.batches = self.runtime.batches(self.config, self.records, first)
        if not self.guard.is_in_streak:  # else the guard may go back and take this step again
            self._export()

    def roll_back(self) -> None:
        """Return to the last good checkpoint, and pass over the batches since then."""
        self.step = self.guard.roll_back(self.step, self.checkpoints.restore)
        self._require_agreement()
        self.runtime.from_variables()
        self.checkpoints.drop(lambda later: later > self.step)
        self.rewind()

    def evaluate_if_due(self) -> dict[str, float]:
        """Return the held-out metrics if an evaluation is due, else an empty dict."""
        if self.selection.is_due(self.step):
            self.runtime.to_variables()
        return self.selection.evaluate_if_due(self.step)

    def save_if_due(self) -> None:
        """Save a checkpoint if one is due, or at the end of the run."""
        loop = self.config.loop
        is_end = self.step == loop.steps or self.selection.is_exhausted
        # Not within a streak of skipped steps, because the guard would restore that checkpoint.
        if is_end or (self.step % loop.checkpoint_every == 0 and not self.guard.is_in_streak):
            self._save()

    def save_and_exit(self, number: int) -> NoReturn:
        """Save a checkpoint and end the process as the signal of this number would."""
        # The guard must not restore this checkpoint, which an uninterrupted run would not have.
        if self.step != (last_good := int(self.guard.last_good.numpy())):
            self._write(also_keep=last_good)
        if self.runtime.is_chief:
            print(f"stopped, saved at step {self.step:,}", flush=True)
        sys.exit(128 + (number or signal.SIGTERM))

    def numbers(self, batch: int) -> list[tuple[str, int, int]]:
        """Return (folder, epoch, record) of the records of a batch."""
        size = self.config.loop.global_batch_size
        return self.records.numbers(self.config.seed, batch * size, size)

    def _require_agreement(self) -> None:
        """Check that all processes train the same configuration from the same checkpoint.

        Raises:
          InputError: they do not.
        """
        config, records = settings.to_dict(self.config), self.records.manifest.identity()
        state = [config, records, self.step, int(self.guard.offset.numpy())]
        if not self.runtime.agree(json.dumps(state, sort_keys=True)):
            raise InputError(
                "all workers must start with the same settings, records and checkpoint. Received: "
                f"step {self.step:,} of {self.run.path} here, and others elsewhere. Start all with "
                "the same command, on a folder that they share."
            )

    def _write(self, also_keep: int | None = None) -> None:
        """Write a checkpoint, which all workers read from the chief's folder."""
        self.runtime.to_variables()
        if self.runtime.is_chief:
            self.checkpoints.save(self.step, also_keep)

    def _save(self) -> None:
        self.guard.last_good.assign(self.step)
        self._write()
        self.selection.drop_older()
        self._export()

    def _export(self) -> None:
        if self.step and self.runtime.is_chief:
            self.selection.export(self.step)


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
