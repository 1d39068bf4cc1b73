"""The steps of a fine-tuning under JAX's client, on one device."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.models.encoder import INPUTS
from albert_tf.models.kernels import tracing_for
from albert_tf.tasks.features import BUCKET
from albert_tf.tasks.task_model import TaskModel
from albert_tf.training.jax_devices import JaxDevices
from albert_tf.training.jax_program import Program
from albert_tf.training.progress import Progress

AHEAD = 10  # steps that are handed to the device before the host waits for one


class JaxFit:
    """Computes the steps of models, as `finetuning.training.fit.Fit` says.

    The model's `train_step` is lowered and compiled for each shape of a batch. So that there are
    few, texts are padded to `padded_width` pieces. Weights and optimizer are on the device during a
    call only. Dropout has the masks of TensorFlow's steps where the width is the same.

    Args:
      devices: what JAX found; the first device is used.
    """

    def __init__(self, devices: JaxDevices) -> None:
        self._jax, self._device = devices.jax, devices.devices[0]
        self._options, self._platform = devices.options, devices.platform
        self._model: TaskModel | None = None
        self._programs: dict[Any, Any] = {}  # by the shapes of a batch
        self._variables: list[tf.Variable] = []

    def __call__(
        self,
        model: TaskModel,
        batches: tf.data.Dataset,
        steps: int,
        class_weights: Mapping[int, float] | None,
        progress: Progress,
    ) -> float:
        """Run the steps of all batches; return the mean loss."""
        if model is not self._model:
            self._model, self._programs, self._variables = model, {}, []
        for metric in model.metrics:
            metric.reset_state()
        if class_weights:
            batches = batches.map(_weighting(class_weights))
        state: list[Any] = []
        loss: Any = None
        for number, batch in enumerate(batches.as_numpy_iterator()):
            batch = padded_batch(batch, model.task.seq_length)
            features = tf.nest.flatten(batch)
            shapes = tuple(np.shape(feature) for feature in features)
            if shapes not in self._programs:
                self._programs[shapes] = self._program(model, batch, features)
            if not state:
                state = [self._put(variable.numpy()) for variable in self._variables]
            run = self._programs[shapes]
            loss, *state = run(state, [self._put(feature) for feature in features])
            if number % AHEAD == AHEAD - 1:
                self._jax.block_until_ready(loss)
            progress.advance(1)
        values = self._jax.device_get(state)
        for variable, value in zip(self._variables, values, strict=True):
            variable.assign(value)
        return float(loss)

    def _put(self, value: np.ndarray) -> Any:
        return self._jax.device_put(value, self._device)

    def _program(self, model: TaskModel, batch: Any, features: list[np.ndarray]) -> Any:
        """Return a function from state and features to the mean loss and the new state."""
        specs = [tf.TensorSpec(np.shape(value), value.dtype) for value in features]

        def logs(*values: tf.Tensor) -> dict[str, tf.Tensor]:
            return model.train_step(tf.nest.pack_sequence_as(batch, list(values)))

        def step(*values: tf.Tensor) -> list[tf.Tensor]:
            loss = logs(*values)["loss"]  # the mean since the metrics were reset
            return [loss, *(tf.identity(variable) for variable in self._variables)]

        with tracing_for("TPU" if self._platform == "tpu" else "XLA"):
            if not self._variables:
                # Keras makes the variables of its metrics in the first step.
                tf.function(logs, autograph=False).get_concrete_function(*specs)
                self._variables = _variables_of(model)
            program = Program.of(step, specs, self._variables)
        return self._jax.jit(
            lambda state, values: program(state, *values),
            donate_argnums=0,
            compiler_options=self._options,
        )


def padded_width(longest: int, limit: int) -> int:
    """Return the least of 32, 64, 128 and so on that is at least `longest`, or `limit`."""
    width = BUCKET
    while width < longest:
        width *= 2
    return max(longest, min(width, limit))


def padded_batch(batch: tuple, limit: int) -> tuple:
    """Return a batch whose texts are padded to `padded_width`; the mask of padding is 0."""
    inputs, *others = batch
    longest = inputs["input_mask"].shape[-1]
    more = padded_width(longest, limit) - longest
    padded = {
        name: np.pad(value, [(0, 0)] * (value.ndim - 1) + [(0, more)]) if name in INPUTS else value
        for name, value in inputs.items()
    }
    return padded, *others


def _weighting(class_weights: Mapping[int, float]) -> Any:
    """Return what adds the weights of the labels to a batch, as the `class_weight` of `fit`."""
    weights = tf.constant([class_weights[label] for label in sorted(class_weights)], tf.float32)
    return lambda inputs, labels: (inputs, labels, tf.gather(weights, labels))


def _variables_of(model: TaskModel) -> list[tf.Variable]:
    """Return all that a step reads or updates."""
    every = [*model.variables, *model.optimizer.variables, model.optimizer.learning_rate]
    every += [variable for metric in model.metrics for variable in metric.variables]
    unique = {id(value.handle): value for value in every if isinstance(value, tf.Variable)}
    return list(unique.values())
