"""The loop of a fine-tuning: tf_keras `fit`, evaluate, log, save, stop."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.models.checkpoints import weights_of
from albert_tf.optimization import LinearWarmupLinearDecay
from albert_tf.optimization.layerwise_adamw import LayerwiseAdamW
from albert_tf.runtime import devices
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.features import Features
from albert_tf.tasks.task_model import TaskModel
from albert_tf.training.best_weights import BestWeights
from albert_tf.training.checkpoints import Checkpoints
from albert_tf.training.metrics_log import MetricsLog, writable_run
from albert_tf.training.progress import Progress
from finetuning.training.batches import Arrange, by_length, training_batches
from finetuning.training.config import FinetuneConfig, Plan
from finetuning.training.layer_rates import factors_of, freeze

Scores = dict[str, float]
# (a compiled model, its batches, their number, the weights of labels, a bar that counts the steps)
# -> the mean loss; the variables of model and optimizer are up to date afterwards.
Fit = Callable[[TaskModel, tf.data.Dataset, int, Mapping[int, float] | None, Progress], float]


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
      ConfigError: the settings do not fit the model.
    """
    values = config.training
    tf_keras.utils.set_random_seed(config.seed)
    with strategy.scope():
        model = model_of()
        if values.frozen:
            freeze(model, values.frozen)
        optimizer = _optimizer(config, plan, model)
        optimizer.build(model.trainable_variables)
        model.dropout_seed, model.accumulation_steps = config.seed, values.accumulation_steps
        model.kernels = values.kernels
        model.compile(optimizer, loss or model.training_losses())
    return model


def keras_fit(
    model: TaskModel,
    batches: tf.data.Dataset,
    steps: int,
    class_weights: Mapping[int, float] | None,
    progress: Progress,
) -> float:
    """Run steps by the model's `fit`; return the mean loss."""
    model.fit(
        batches,
        steps_per_epoch=steps,
        class_weight=class_weights,
        callbacks=[_Advance(progress)],
        verbose=0,
    )
    return model.history.history["loss"][0]


def fine_tune(
    model: TaskModel,
    config: FinetuneConfig,
    plan: Plan,
    train: Features,
    evaluate: Callable[[TaskModel], Scores],
    metric: str,
    run: RunDir,
    arrange: Arrange | None = None,
    fit: Fit = keras_fit,
) -> int:
    """Train a compiled model to the end of its plan or patience; restore and return the best step.

    An interrupted run resumes from its last evaluation, with the batches and the dropout that it
    would have had. `evaluate` returns name -> value on the dev examples; `metric` names the value
    that chooses the best weights. Higher is better; of equal values, the one with the lower `loss`,
    or without a loss the later one; a note says if the first was the best. `arrange` is that of
    `training_batches`. `fit` computes the steps. `run` has begun, and the chief holds its lock.

    Raises:
      InputError: the loss is not finite, or the metric was never a number.
    """
    values, every = config.training, plan.evaluate_every
    state = FinetuningState(model, metric, values.patience, run)
    best, size, pad = state.best, values.batch_size, not values.pad_to_longest
    arrange = by_length(train.unit_lengths, size) if values.group_by_length else arrange
    balanced = values.class_weights == "balanced"
    weights = balanced_weights(train.targets["label"]) if balanced else None
    with (
        MetricsLog(state.writes) as log,
        Progress("steps", plan.steps, state.step) as progress,
        state.note_if_stopped(),
    ):
        log.rewind(state.step)
        while state.step < plan.steps and not best.is_exhausted:
            start, first = time.monotonic(), state.step
            end = min(plan.steps, first - first % every + every)
            batches = training_batches(train, size, config.seed, first, end, pad, arrange)
            loss = fit(model, batches, end - first, weights, progress)
            _require_finite(loss, end)
            scores = evaluate(model)
            row = {f"dev/{name}": value for name, value in scores.items()}
            log.add({"step": end, "loss/train": loss, **row, "seconds": time.monotonic() - start})
            best.add(end, scores[metric], scores.get("loss"))
            state.save(end)
            print(_line(end, plan.steps, loss, scores), flush=True)  # it means that it is saved
            if best.is_exhausted:
                print(f"No improvement in {best.stale} evaluations: the run stops.")
    if best.value is None:
        raise InputError(f"`training.metric`: dev {metric} was not a number in any evaluation.")
    _note_if_first_was_best([row[f"dev/{metric}"] for row in run.metrics()], best.is_exhausted)
    best.restore()
    return best.step


def _note_if_first_was_best(values: list[float], is_exhausted: bool) -> None:
    """Print a note if all later evaluations, at least two or all of the patience, were worse."""
    has_seen_enough = len(values) > 2 or (is_exhausted and len(values) > 1)
    if has_seen_enough and all(value < values[0] for value in values[1:]):
        print(
            f"note: of {len(values)} evaluations, the first was the best on dev. A lower "
            "training.learning_rate may help, or more examples."
        )


def balanced_weights(labels: np.ndarray) -> dict[int, float]:
    """Return label -> n / (k n_c), the weight with which each of k labels counts equally.

    `labels` are the n labels of the training examples, n_c of which are c.
    """
    counts = np.bincount(labels)
    equal = len(labels) / np.count_nonzero(counts)
    return {label: equal / count if count else 0.0 for label, count in enumerate(counts.tolist())}


def evaluated_loss(model: TaskModel, features: Features, batch_size: int) -> float:
    """Return the mean of the task's own loss per unit, without dropout, on one device."""
    order = np.argsort(features.unit_lengths, kind="stable")  # for few shapes and little padding
    batches = tf.data.Dataset.from_tensor_slices(order).batch(batch_size).map(features.batch)
    with model.distribute_strategy.scope():
        model.compile(loss=model.training_losses())
    return model.evaluate(batches.prefetch(2), verbose=0, return_dict=True)["loss"]


class FinetuningState:
    """The state of a run: its step, with the weights and the optimizer, and the best weights.

    It begins with the last evaluation of a run that was interrupted. The best weights are the run's
    checkpoint.
    """

    def __init__(self, model: TaskModel, metric: str, patience: int | None, run: RunDir) -> None:
        self.writes = writable_run(run, devices.is_chief(model.distribute_strategy))
        weights = weights_of(model)
        self._last = Checkpoints(
            tf.train.Checkpoint(model=weights, optimizer=model.optimizer),
            run.training_path,
            self.writes.training_path,
            keep=1,
        )
        self.best = BestWeights(
            tf.train.Checkpoint(model=weights),
            run.checkpoints_path,
            self.writes.checkpoints_path,
            f"dev/{metric}",
            lower=False,
            patience=patience,
            # Spans have none: their inference ends in a beam, so that it needs another pass.
            loss="dev/loss",
        )
        self.step = self._last.restore() or 0
        if self.step:
            print(f"{run.path} resumes from step {self.step:,}.")
        self.best.rewind(run.metrics(), self.step)

    def save(self, step: int) -> None:
        """Save the weights and the optimizer as those of this step."""
        self._last.save(step)
        self.step = step
        self.best.drop_older()

    @contextlib.contextmanager
    def note_if_stopped(self) -> Iterator[None]:
        """Print where the run will resume if it is stopped in the block.

        It is not saved, unlike in pretraining: the loss that `fit` sums is not restored.
        """
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            print(f"stopped: the same command resumes from step {self.step:,}", flush=True)
            raise


class _Advance(tf_keras.callbacks.Callback):
    """A callback that advances a progress bar."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._supports_tf_logs = True  # otherwise tf_keras waits for each step's loss
        self._progress = progress

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self._progress.advance(1)


def _require_finite(loss: float, step: int) -> None:
    if not math.isfinite(loss):
        raise InputError(
            f"the loss was not finite before step {step:,}. Pass a lower training.learning_rate, "
            "or more training.warmup_steps."
        )


def _line(step: int, steps: int, loss: float, scores: Scores) -> str:
    shown = "".join(f", dev {name} {value:.4f}" for name, value in scores.items())
    return f"step {step:,} of {steps:,}: loss {loss:.4f}{shown}"


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
