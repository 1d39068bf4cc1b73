"""The base class of task models: an encoder with a head, and dropout that depends on the step."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.models.checkpoints import weights_of
from albert_tf.models.configured_model import freeze_layers, frozen_layers
from albert_tf.models.encoder import INPUTS, AlbertEncoder, call_symbolically
from albert_tf.models.layers import common
from albert_tf.models.layers.configured import PolicyMixin
from albert_tf.runtime import settings
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.task_settings import TaskSettings
from albert_tf.training.step import accumulated, in_parts, step_dropout_key


class TaskModel(PolicyMixin, tf_keras.Model):
    """An encoder with a task's head, for `compile` and `fit`.

    In `fit`, dropout is a function of (`dropout_seed`, step, replica, part of the batch), so that a
    resumed run draws the same masks as an uninterrupted one. No loss may depend on the outputs at
    padded positions, which training on a CPU may skip.

    Keras can save the model in every format if the encoder is an `AlbertEncoder`; otherwise only as
    a SavedModel.

    Args:
      encoder: an `AlbertEncoder`, or any layer with TF Hub's encoder interface, such as a
        `hub.KerasLayer`.
      task: the `task` section of the config, an instance of `task_class`.
      dropout_seed: see above.
      accumulation_steps: the number of parts that `fit` splits a replica's batch into. It computes
        them one after the other for one update: the same gradient in less memory. The batch size
        must be a multiple of it.
      kernels: the operations to train with, `auto` or `plain`; see `kernels.choice.choose`.

    Attributes:
      has_batch_loss: True if the loss of an example depends on the others of its batch. Parts then
        have the gradient of the whole batch by cached gradients (arXiv 2101.06983), for which each
        part is computed twice.

    Raises:
      ValueError: `dtype` differs from the encoder's.
    """

    task_class: type[TaskSettings]
    task: TaskSettings
    head: tf_keras.layers.Layer
    has_batch_loss: bool = False

    def __init__(
        self,
        encoder: tf_keras.layers.Layer,
        task: TaskSettings,
        dropout_seed: int = 0,
        accumulation_steps: int = 1,
        kernels: str = "auto",
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"dtype": encoder.dtype_policy, "autocast": False} | kwargs)
        if self.dtype_policy.name != encoder.dtype_policy.name:
            raise ValueError(
                f"`dtype` of {type(self).__name__} must be its encoder's, "
                f"{encoder.dtype_policy.name}. Received: {self.dtype_policy.name}."
            )
        self.encoder, self.task = encoder, task
        self.head = self.new_head()
        self.dropout_seed, self.accumulation_steps = dropout_seed, accumulation_steps
        self.kernels = kernels
        self._step_key: common.DropoutKey | None = None  # set within `train_step`

    def new_head(self) -> Any:
        """Return the layer that is trained with the encoder, without weights; None for none."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments in Keras's serialized form.

        Raises:
          NotImplementedError: the encoder is not an `AlbertEncoder`.
        """
        if not isinstance(self.encoder, AlbertEncoder):
            raise NotImplementedError(
                f"{type(self).__name__} with a {type(self.encoder).__name__} as encoder has no "
                "Keras configuration: save it as a SavedModel."
            )
        encoder = tf_keras.saving.serialize_keras_object(self.encoder)
        # Keras numbers shared objects too late for the copies that a functional model makes.
        encoder["shared_object_id"] = id(self.encoder)
        return tf_keras.layers.Layer.get_config(self) | {
            "encoder": encoder,
            "task": settings.to_dict(self.task),
            "dropout_seed": self.dropout_seed,
            "accumulation_steps": self.accumulation_steps,
            "kernels": self.kernels,
            "frozen": frozen_layers(self),
        }

    def as_run(self) -> tuple[tf.train.Checkpoint, dict[str, Any]]:
        """Return what a run folder of this model holds: its weights, and sections of config.json.

        Raises:
          InputError: the encoder is not an `AlbertEncoder`, or too short for `task.seq_length`.
        """
        if not isinstance(self.encoder, AlbertEncoder):
            raise InputError(
                "`model` must have an AlbertEncoder as its encoder. Received: a "
                f"{type(self).__name__} with a {type(self.encoder).__name__}. Save it as a "
                "SavedModel, with model.save."
            )
        config, task = self.encoder.config, self.task
        task.require_positions(config.max_positions, "`model`")
        if task.logit_temperature != 1:  # the weights have been divided by it
            task = task.replace(logit_temperature=1.0)
        sections = {"model": settings.to_dict(config), "task": settings.to_dict(task)}
        return weights_of(self), sections

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: object = None) -> Self:
        """Build the model from the result of `get_config`, with new weights."""
        values = dict(config)
        frozen = values.pop("frozen")
        encoder = tf_keras.saving.deserialize_keras_object(values.pop("encoder"))
        task = settings.from_dict(cls.task_class, values.pop("task"))
        model = cls(encoder, task, **values).create_weights()
        freeze_layers(model, frozen)
        return model

    def load_weights(self, *args: Any, **kwargs: Any) -> Any:
        """Load weights as Keras does, into weights that are created first if necessary."""
        self.create_weights()
        return super().load_weights(*args, **kwargs)

    def build_from_config(self, config: Mapping[str, Any]) -> None:
        """Create every weight; `config` is not needed."""
        self.create_weights()

    def encode(
        self, inputs: Mapping[str, tf.Tensor], training: bool, pooled_only: bool = False
    ) -> tuple[dict[str, tf.Tensor], common.DropoutKey | None]:
        """Return the encoder's outputs and the key of the head's dropout, None outside training.

        With `pooled_only`, outside training, the outputs may be `pooled_output` only.
        """
        encoder_inputs = {name: inputs[name] for name in INPUTS}
        key = self._dropout_key() if training else None
        if not isinstance(self.encoder, AlbertEncoder):  # it takes no other arguments
            return self.encoder(encoder_inputs, training=training), key
        if not training:
            return self.encoder(encoder_inputs, training=False, pooled_only=pooled_only), None
        outputs = self.encoder(
            encoder_inputs,
            training=True,
            dropout_key=common.fold_in(key, 0),
            skip_padding=True,
            kernels=self.kernels,
        )
        return outputs, common.fold_in(key, 1)

    def _dropout_key(self) -> common.DropoutKey:
        return common.new_dropout_key() if self._step_key is None else self._step_key

    @contextlib.contextmanager
    def _keyed(self, key: common.DropoutKey) -> Iterator[None]:
        """Draw the dropout of the block from `key`."""
        self._step_key = key
        try:
            yield
        finally:
            self._step_key = None

    @tf.autograph.experimental.do_not_convert
    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Run tf_keras's training step, summing the gradients of `accumulation_steps` parts.

        Raises:
          ValueError: `accumulation_steps` is above 1 and the loss is scaled.
        """
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        key = step_dropout_key(self.dropout_seed, self.optimizer.iterations, replica)
        count = self.accumulation_steps
        if count == 1:
            with self._keyed(key):
                return super().train_step(data)
        if isinstance(self.optimizer, tf_keras.mixed_precision.LossScaleOptimizer):
            raise ValueError(
                "`accumulation_steps` must be 1 with loss scaling (mixed_float16). "
                f"Received: {count}."
            )
        gradients_of: Callable[[Any], list[tf.Tensor | None]] = self._gradients
        batch = data
        if self.has_batch_loss:
            gradients_of, batch = self._gradients_from_outputs, self._cached(data, key)
        variables: list[tf.Variable] = []  # those with gradients, which the first part shows

        def of_part(part: Any, key: common.DropoutKey) -> list[tf.Tensor]:
            with self._keyed(key):
                pairs = zip(gradients_of(part), self.trainable_variables, strict=True)
            known = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
            variables[:] = [variable for _, variable in known]
            return [tf.convert_to_tensor(gradient) for gradient, _ in known]

        gradients = accumulated(of_part, batch, key, count)
        if hasattr(self.optimizer, "build"):  # Keras's legacy optimizers have none
            with tf.init_scope():  # with all weights, as Keras builds it to load its variables
                self.optimizer.build(self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return self.get_metrics_result()

    def _gradients(self, data: Any) -> list[tf.Tensor | None]:
        """Return a part's share of the batch's gradient, None for weights that have none."""
        inputs, targets, weights = tf_keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            outputs = self(inputs, training=True)
            loss = self.compute_loss(inputs, targets, outputs, weights) / self.accumulation_steps
        self.compiled_metrics.update_state(targets, outputs, weights)
        return tape.gradient(loss, self.trainable_variables)

    def _cached(self, data: Any, key: common.DropoutKey) -> tuple[Any, tf.Tensor]:
        """Return the inputs of a batch and the gradient of its loss with respect to the outputs."""
        inputs, targets, weights = tf_keras.utils.unpack_x_y_sample_weight(data)

        def outputs_of(part: Any, key: common.DropoutKey) -> tf.Tensor:
            with self._keyed(key):
                return self(part, training=True)

        outputs = in_parts(outputs_of, inputs, key, self.accumulation_steps)
        with tf.GradientTape() as tape:
            tape.watch(outputs)
            loss = self.compute_loss(inputs, targets, outputs, weights)
        self.compiled_metrics.update_state(targets, outputs, weights)
        return inputs, tape.gradient(loss, outputs)

    def _gradients_from_outputs(self, part: tuple[Any, tf.Tensor]) -> list[tf.Tensor | None]:
        """Return a part's share of the batch's gradient, from what `_cached` returns."""
        inputs, gradient = part
        with tf.GradientTape() as tape:
            outputs = self(inputs, training=True)
        return tape.gradient(outputs, self.trainable_variables, output_gradients=gradient)

    def training_losses(self) -> Any:
        """Return the argument of `compile(loss=...)`."""
        raise NotImplementedError

    def evaluation_losses(self) -> Any:
        """Return the loss of the outputs outside training."""
        return self.training_losses()

    def mean_loss(self, outputs: Any, targets: Mapping[str, Any], batch_size: int) -> float | None:
        """Return the mean loss of the outputs of `predict`, None if the target `label` is unknown.

        A loss that compares examples with others compares those of batches of `batch_size`.
        """
        if not targets:
            return None
        labels, count = targets["label"], len(targets["label"])
        step = batch_size if self.has_batch_loss else count
        loss = self.evaluation_losses()
        total = 0.0
        for begin in range(0, count, step):
            rows = slice(begin, begin + step)
            # One loss per example: in `fit`, a strategy forbids a loss that takes its own mean.
            losses = loss.call(tf.constant(labels[rows]), tf.constant(outputs[rows]))
            total += float(np.mean(losses)) * len(labels[rows])
        return total / count

    def divide_logits(self, temperature: float) -> None:
        """Divide the weights of the head `head`, and so the logits, by a temperature."""
        for weight in self.head.weights:
            weight.assign(weight / temperature)

    def create_weights(self) -> Self:
        """Create every weight with one symbolic call; return self."""
        call_symbolically(self, INPUTS)
        return self


class TemperedLoss(tf_keras.losses.Loss):
    """A loss of cosines or logits, which it divides by a temperature."""

    def __init__(self, temperature: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return super().get_config() | {"temperature": self.temperature}


def head_dense(units: int, name: str, **kwargs: Any) -> tf_keras.layers.Dense:
    """Return a float32 dense layer for a head.

    Its kernel starts as a truncated normal of standard deviation 0.02 (google-research/albert).
    """
    initializer = tf_keras.initializers.TruncatedNormal(stddev=0.02)
    return tf_keras.layers.Dense(
        units, kernel_initializer=initializer, dtype=tf.float32, name=name, **kwargs
    )
