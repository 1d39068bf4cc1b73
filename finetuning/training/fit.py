"""Training of a task model with tf_keras `compile` and `fit`, which keeps the best weights."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.optimization import LinearWarmupLinearDecay
from albert_tf.runtime import devices
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.features import Features
from albert_tf.tasks.task_model import TaskModel
from albert_tf.training.best_weights import BestWeights
from albert_tf.training.checkpoints import Checkpoints
from albert_tf.training.metrics_log import MetricsLog, writable_run
from albert_tf.training.progress import Progress
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
    """Return the model, compiled for `fit`.

    `model_of` makes the model with its initial weights, in the strategy's scope. `loss` replaces
    the model's own, as for `compile`.

    Raises:
      ConfigError: the settings do not fit the model or the number of replicas.
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
) -> int:
    """Train a compiled model to the end of its plan or patience; restore and return the best step.

    An interrupted run resumes from its last evaluation, with the batches and the dropout that it
    would have had. The best weights are the run's checkpoint. `evaluate` returns name -> value on
    the dev examples; `metric` names the value that chooses the best weights. Higher is better; of
    equal values, the one with the lower `loss`, or without a loss the later one. `run` has begun,
    and the chief holds its lock.

    Raises:
      InputError: the loss is not finite, or the metric was never a number.
    """
    values, strategy = config.training, model.distribute_strategy
    writes = writable_run(run, devices.is_chief(strategy))
    with MetricsLog(writes) as log:
        state = _State(model, metric, values.patience, run, writes, log)
        first = state.restore()
        if first < plan.steps and not state.best.is_exhausted:
            size, pad = values.batch_size, not values.pad_to_longest
            balanced = values.class_weights == "balanced"
            weights = balanced_weights(train.targets["label"]) if balanced else None
            batches = training_batches(train, size, config.seed, first, plan.steps, pad)
            try:
                with Progress("steps", plan.steps, first) as progress:
                    evaluation = _Evaluation(state, evaluate, plan, first, progress)
                    model.fit(batches, class_weight=weights, callbacks=[evaluation], verbose=0)
            # Stop without saving, unlike `StopRequest`: the loss that `fit` sums is not restored.
            except (KeyboardInterrupt, SystemExit):
                print(f"stopped: the same command resumes from step {state.step:,}", flush=True)
                raise
        if state.best.value is None:
            raise InputError(f"`training.metric`: dev {metric} was not a number in any evaluation.")
        state.best.restore()
        return state.best.step


def balanced_weights(labels: np.ndarray) -> dict[int, float]:
    """Return label -> n / (k n_c), the weight with which each of k labels counts equally.

    `labels` are the n labels of the training examples, n_c of which are c.
    """
    counts = np.bincount(labels)
    equal = len(labels) / np.count_nonzero(counts)
    return {label: equal / count if count else 0.0 for label, count in enumerate(counts.tolist())}


def mean_loss(model: TaskModel, features: Features, batch_size: int) -> float:
    """Return the mean of the task's own loss per unit, without dropout, on one device."""
    order = np.argsort(features.unit_lengths, kind="stable")  # for few shapes and little padding
    batches = tf.data.Dataset.from_tensor_slices(order).batch(batch_size).map(features.batch)
    with model.distribute_strategy.scope():
        model.compile(loss=model.training_losses())
    return model.evaluate(batches.prefetch(2), verbose=0, return_dict=True)["loss"]


def weights_of(model: TaskModel) -> tf.train.Checkpoint:
    """Return a checkpoint of the model's layers.

    A compiled model itself also tracks its optimizer.
    """
    layers = {
        name: child
        for name, child in tf.train.TrackableView.children(model).items()
        if isinstance(child, tf_keras.layers.Layer) and name in vars(model)
    }
    return tf.train.Checkpoint(**layers)


class _State:
    """The state of a run: its weights, its optimizer and its evaluations."""

    def __init__(
        self,
        model: TaskModel,
        metric: str,
        patience: int | None,
        run: RunDir,
        writes: RunDir,
        log: MetricsLog,
    ) -> None:
        self._source, self._metric, self._log = run, metric, log
        self.step, self._since = 0, time.monotonic()
        weights = weights_of(model)
        self._last = Checkpoints(
            tf.train.Checkpoint(model=weights, optimizer=model.optimizer),
            run.training_path,
            writes.training_path,
            keep=1,
        )
        self.best = BestWeights(
            tf.train.Checkpoint(model=weights),
            run.checkpoints_path,
            writes.checkpoints_path,
            f"dev/{metric}",
            lower=False,
            patience=patience,
            # Spans have none: their inference ends in a beam, so that it needs another pass.
            loss="dev/loss",
        )

    def restore(self) -> int:
        """Restore the last evaluation, if there is one, and return its step."""
        self.step = self._last.restore() or 0
        if self.step:
            print(f"{self._source.path} resumes from step {self.step:,}.")
        rows = self._source.metrics()
        self._log.rewind(self.step)
        self.best.rewind(rows, self.step)
        return self.step

    def evaluated(self, step: int, loss: float, scores: Scores) -> None:
        """Record an evaluation, and save the weights if they are the best so far."""
        seconds, self._since = time.monotonic() - self._since, time.monotonic()
        row = {f"dev/{name}": value for name, value in scores.items()} | {"seconds": seconds}
        self._log.add({"step": step, "loss/train": loss} | row)
        self.best.add(step, scores[self._metric], scores.get("loss"))
        self._last.save(step)
        self.step = step
        self.best.drop_older()


class _Evaluation(tf_keras.callbacks.Callback):
    """A callback that evaluates the dev examples as planned and after the last step."""

    def __init__(
        self,
        state: _State,
        evaluate: Callable[[TaskModel], Scores],
        plan: Plan,
        first: int,
        progress: Progress,
    ) -> None:
        super().__init__()
        self._supports_tf_logs = True  # otherwise tf_keras waits for each step's loss
        self._state, self._evaluate, self._plan, self._step = state, evaluate, plan, first
        self._progress = progress

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._step += 1
        self._progress.advance(1)
        if self._step % self._plan.evaluate_every and self._step < self._plan.steps:
            return
        # tf_keras sums the losses of the workers.
        loss = float((logs or {})["loss"]) / devices.num_workers(self.model.distribute_strategy)
        if not math.isfinite(loss):
            raise InputError(
                f"the loss was not finite before step {self._step:,}. Pass a lower "
                "training.learning_rate, or more training.warmup_steps."
            )
        scores = self._evaluate(self.model)
        self._state.evaluated(self._step, loss, scores)  # the line below means that it is saved
        shown = "".join(f", dev {name} {value:.4f}" for name, value in scores.items())
        print(f"step {self._step:,} of {self._plan.steps:,}: loss {loss:.4f}{shown}", flush=True)
        if self._state.best.is_exhausted:
            print(f"No improvement in {self._state.best.stale} evaluations: the run stops.")
            self.model.stop_training = True
        self.model.reset_metrics()  # the next row's loss covers its own steps only


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
