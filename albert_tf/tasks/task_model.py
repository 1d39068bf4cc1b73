"""What task models share: an encoder below a head, and dropout that follows the step."""

from collections.abc import Mapping
from typing import Any, Self

import tensorflow as tf
import tf_keras

from albert_tf.models.encoder import INPUTS, AlbertEncoder, symbolic
from albert_tf.models.layers import common
from albert_tf.runtime import settings
from albert_tf.training.step import split_batch, step_dropout_key, sum_over_parts


class TaskModel(tf_keras.Model):
    """An encoder with a task's head, for `compile` and `fit`.

    Compiled, its dropout is a function of (`dropout_seed`, step, replica, part of the batch): a run
    that is taken up again has the masks that it would have had.

    Attributes:
      accumulation_steps: parts that `fit` computes a replica's batch in, one after the other, for
        one update: the same gradient in less memory. They must divide the batch.

    Over an `AlbertEncoder` Keras can save it in every format, over another encoder as a SavedModel.

    Args:
      encoder: an `AlbertEncoder`, or any layer of TF Hub's contract, such as a `hub.KerasLayer`.
      task: the `task` section of the config, a `task_class`.
    """

    task_class: type

    def __init__(self, encoder: tf_keras.layers.Layer, task: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.encoder, self.task = encoder, task
        self.dropout_seed, self.accumulation_steps = 0, 1
        self._part: tf.Tensor | int = 0

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, as Keras writes them."""
        if not isinstance(self.encoder, AlbertEncoder):
            raise NotImplementedError(
                f"{type(self).__name__} over {type(self.encoder).__name__} has no configuration: "
                "save it as a SavedModel."
            )
        return tf_keras.layers.Layer.get_config(self) | {
            "encoder": self.encoder.get_config(),
            "task": settings.to_dict(self.task),
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: object = None) -> Self:
        """The inverse of `get_config`, with new weights."""
        encoder = AlbertEncoder.from_config(config["encoder"])
        task: Any = settings.from_dict(cls.task_class, config["task"])
        return cls(**{**config, "encoder": encoder, "task": task}).create_weights()

    def build_from_config(self, config: Mapping[str, Any]) -> None:
        self.create_weights()

    def encode(
        self, inputs: Mapping[str, tf.Tensor], training: bool
    ) -> tuple[dict[str, tf.Tensor], common.DropoutKey | None]:
        """The encoder's outputs, and the key of the head's dropout, None where there is none."""
        encoder_inputs = {name: inputs[name] for name in INPUTS}
        if not training:
            return self.encoder(encoder_inputs, training=False), None
        key = self._dropout_key()
        if not isinstance(self.encoder, AlbertEncoder):  # it takes no key
            return self.encoder(encoder_inputs, training=True), key
        outputs = self.encoder(encoder_inputs, training=True, dropout_key=common.fold_in(key, 0))
        return outputs, common.fold_in(key, 1)

    def _dropout_key(self) -> common.DropoutKey:
        optimizer = getattr(self, "optimizer", None)
        if optimizer is None:
            return common.new_dropout_key()
        key = step_dropout_key(self.dropout_seed, optimizer.iterations)
        return key if self.accumulation_steps == 1 else common.fold_in(key, self._part)

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """As of tf_keras, with the gradients of `accumulation_steps` parts summed up."""
        if self.accumulation_steps == 1:
            return super().train_step(data)
        parts = split_batch(data, self.accumulation_steps)
        # The first part outside of the loop: it shows which weights have gradients at all.
        gradients, variables = self._gradients(parts, 0)
        gradients = sum_over_parts(
            lambda part: self._gradients(parts, part)[0], 1, self.accumulation_steps, gradients
        )
        self._part = 0
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return self.get_metrics_result()

    def _gradients(
        self, parts: Any, part: tf.Tensor | int
    ) -> tuple[list[tf.Tensor], list[tf.Variable]]:
        """A part's share of the gradient of the batch's loss, and the weights that have one."""
        self._part = part
        inputs, targets, weights = tf_keras.utils.unpack_x_y_sample_weight(
            tf.nest.map_structure(lambda values: values[part], parts)
        )
        with tf.GradientTape() as tape:
            outputs = self(inputs, training=True)
            loss = self.compute_loss(inputs, targets, outputs, weights) / self.accumulation_steps
        self.compiled_metrics.update_state(targets, outputs, weights)
        found = zip(
            tape.gradient(loss, self.trainable_variables), self.trainable_variables, strict=True
        )
        known = [
            (tf.convert_to_tensor(each), variable) for each, variable in found if each is not None
        ]
        return [each for each, _ in known], [variable for _, variable in known]

    def training_losses(self) -> Any:
        """What `compile(loss=...)` takes."""
        raise NotImplementedError

    def create_weights(self) -> Self:
        """Creates every weight by one call on symbolic inputs; returns self."""
        self(symbolic(INPUTS))
        return self


def head_dense(units: int, name: str, **kwargs: Any) -> tf_keras.layers.Dense:
    """A head's dense layer: truncated normal of 0.02 (google-research/albert), float32."""
    initializer = tf_keras.initializers.TruncatedNormal(stddev=0.02)
    return tf_keras.layers.Dense(
        units, kernel_initializer=initializer, dtype=tf.float32, name=name, **kwargs
    )
