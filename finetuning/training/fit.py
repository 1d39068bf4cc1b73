"""Training a task model with tf_keras `compile` and `fit`, its best weights kept."""

import contextlib
import math
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.models.checkpoints import DAMAGE
from albert_tf.optimization import LinearWarmupLinearDecay
from albert_tf.runtime import devices
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.features import Features
from albert_tf.tasks.task_model import TaskModel
from finetuning.training.batches import training_batches
from finetuning.training.config import FinetuneConfig, Plan
from finetuning.training.layer_rates import LayerwiseAdamW, factors_of, freeze

Scores = dict[str, float]


def compiled(
    config: FinetuneConfig,
    plan: Plan,
    model_of: Callable[[], TaskModel],
    strategy: tf.distribute.Strategy,
    loss: Any = None,
) -> TaskModel:
    """The model as `fit` takes it.

    Args:
      model_of: makes the model, with the weights to start from, in the strategy's scope.
      loss: as for `compile`, instead of the model's own.

    Raises:
      ConfigError: settings that the model or the replicas cannot have.
    """
    values = config.training
    values.check_batch(strategy.num_replicas_in_sync)
    tf_keras.utils.set_random_seed(config.seed)
    with strategy.scope():
        model = model_of()
        if values.frozen:
            freeze(model, values.frozen)
        optimizer = _optimizer(config, plan, model)
        optimizer.build(model.trainable_variables)
        model.dropout_seed, model.accumulation_steps = config.seed, values.accumulation_steps
        model.compile(optimizer, loss or model.training_losses())
    return model


def fine_tune(
    model: TaskModel,
    config: FinetuneConfig,
    plan: Plan,
    train: Features,
    evaluate: Callable[[TaskModel], Scores],
    metric: str,
    run: RunDir,
) -> None:
    """Trains a compiled model to the end of the plan or of the patience; it gets its best weights.

    A run that was interrupted goes on from its last evaluation, with the batches and the dropout
    that it would have had. The best weights are the run's checkpoint.

    Args:
      evaluate: name -> value on the dev examples.
      metric: the one of these that decides, the higher the better.
      run: has been begun.

    Raises:
      InputError: another process is training the run, or the loss is not finite.
    """
    values = config.training
    chief = run if devices.is_chief(model.distribute_strategy) else None
    state = _State(model, metric, run, chief)
    with chief.locked() if chief else contextlib.nullcontext():
        first = state.restore()
        if first < plan.steps and not state.is_exhausted(values.patience):
            pad = not values.pad_to_longest
            try:
                model.fit(
                    training_batches(train, values.batch_size, config.seed, first, plan.steps, pad),
                    callbacks=[_Evaluation(state, evaluate, plan, values.patience, first)],
                    verbose="auto" if sys.stdout.isatty() else 0,
                )
            except (KeyboardInterrupt, SystemExit):
                print(f"stopped: the same command goes on from step {state.step:,}", flush=True)
                raise
        state.read_best()


def weights_of(model: TaskModel) -> tf.train.Checkpoint:
    """The model's layers alone: compiled, it also tracks its optimizer."""
    layers = {
        name: child
        for name, child in tf.train.TrackableView.children(model).items()
        if isinstance(child, tf_keras.layers.Layer) and name in vars(model)
    }
    return tf.train.Checkpoint(**layers)


class _State:
    """What a run knows of itself: its weights, its optimizer, its evaluations.

    chief: the run's folder, to write to; None for another worker, whose files nobody reads.
    """

    def __init__(self, model: TaskModel, metric: str, run: RunDir, chief: RunDir | None) -> None:
        self._model, self._metric, self._run = model, metric, run
        self._scratch = None if chief else tempfile.TemporaryDirectory()
        self._writes = chief or RunDir(cast(Any, self._scratch).name)
        weights = weights_of(model)
        self._best = tf.train.Checkpoint(model=weights)
        self._last = tf.train.Checkpoint(model=weights, optimizer=model.optimizer)
        self._keep_best = _one_file(self._best, self._writes.checkpoints_path)
        self._keep_last = _one_file(self._last, self._writes.training_path)
        self._values: list[float] = []
        self.step, self._since = 0, time.monotonic()
        self._board = tf.summary.create_file_writer(self._writes.tensorboard_path)

    def restore(self) -> int:
        """Goes to the last evaluation, if there was one; returns its step."""
        if path := tf.train.latest_checkpoint(self._run.training_path):
            try:
                self._last.read(path).assert_existing_objects_matched().expect_partial()
            except DAMAGE as error:
                raise InputError(
                    f"{path!r} is damaged ({textwrap.shorten(str(error), 200)}): remove "
                    f"{self._run.path!r}, and the run begins again."
                ) from None
            self.step = int(self._model.optimizer.iterations.numpy())
            print(f"{self._run.path} goes on from step {self.step:,}.")
        self._writes.truncate_metrics(self.step)
        rows = [row for row in self._run.metrics() if row["step"] <= self.step]
        self._values = [row[f"dev/{self._metric}"] for row in rows]
        self._save_if_best()
        return self.step

    def add(self, step: int, loss: float, scores: Scores) -> None:
        """Keeps an evaluation, and the weights if they are the best so far."""
        self._values.append(scores[self._metric])
        row = {"loss/train": loss} | {f"dev/{name}": value for name, value in scores.items()}
        row["seconds"], self._since = time.monotonic() - self._since, time.monotonic()
        self._writes.add_metrics({"step": step} | row)
        with self._board.as_default(step):
            for name, value in row.items():
                tf.summary.scalar(name, value)
        self._board.flush()
        self._keep_last.save(step)
        self.step = step
        self._save_if_best()

    def _save_if_best(self) -> None:
        """After the run's own state: a run that is cut off in between has the weights to do it.

        The other way round, the best weights could be of a step that the run does not go back to.
        """
        if self._values and np.argmax(self._values) == len(self._values) - 1:
            self._keep_best.save(self.step)

    def is_exhausted(self, patience: int | None) -> bool:
        """Whether the last `patience` evaluations brought nothing better."""
        best = int(np.argmax(self._values)) if self._values else 0
        return patience is not None and len(self._values) - 1 - best >= patience

    def read_best(self) -> None:
        """Gives the model its best weights, which this process has saved, or one before it."""
        written, run = self._writes.checkpoints_path, self._run.checkpoints_path
        path = tf.train.latest_checkpoint(written) or tf.train.latest_checkpoint(run)
        self._best.read(path).assert_existing_objects_matched().expect_partial()


def _one_file(checkpoint: tf.train.Checkpoint, folder: str) -> tf.train.CheckpointManager:
    return tf.train.CheckpointManager(checkpoint, folder, max_to_keep=1)


class _Evaluation(tf_keras.callbacks.Callback):
    """Reads the dev examples every so many steps, and after the last."""

    def __init__(
        self,
        state: _State,
        evaluate: Callable[[TaskModel], Scores],
        plan: Plan,
        patience: int | None,
        first: int,
    ) -> None:
        super().__init__()
        self._supports_tf_logs = True  # tf_keras waits for each step's loss otherwise
        self._state, self._evaluate = state, evaluate
        self._plan, self._patience, self._step = plan, patience, first

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._step += 1
        if self._step % self._plan.evaluate_every and self._step < self._plan.steps:
            return
        # tf_keras adds up what the workers found.
        loss = float((logs or {})["loss"]) / devices.num_workers(self.model.distribute_strategy)
        if not math.isfinite(loss):
            raise InputError(
                f"the loss was not finite before step {self._step:,}: pass a lower "
                "training.learning_rate, or more training.warmup_steps."
            )
        scores = self._evaluate(self.model)
        self._state.add(self._step, loss, scores)
        self.model.reset_metrics()  # the loss of the next row is that of its own steps
        shown = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
        print(
            f"step {self._step:,} of {self._plan.steps:,}: loss {loss:.4f}, dev {shown}", flush=True
        )
        if self._state.is_exhausted(self._patience):
            print(f"Nothing better in {self._patience} evaluations: the run ends.")
            self.model.stop_training = True


def _optimizer(config: FinetuneConfig, plan: Plan, model: TaskModel) -> LayerwiseAdamW:
    values = config.training
    schedule = LinearWarmupLinearDecay(values.learning_rate, plan.warmup_steps, plan.steps)
    return LayerwiseAdamW(
        schedule,
        weight_decay_rate=values.weight_decay_rate,
        global_clipnorm=values.clip_norm,
        factors=factors_of(model, values.layer_decay),
        bias_correction=values.bias_correction,
    )
