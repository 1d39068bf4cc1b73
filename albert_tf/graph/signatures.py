"""Signatures of exported modules, and checks of their inputs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf
import tf_keras

from albert_tf.models.encoder import INPUTS

IDS = {name: tf.TensorSpec([None, None], tf.int32, name) for name in INPUTS}
Answer = dict[str, tf.Tensor]


class ServedModule(Protocol):
    """A trackable module with signatures for TF Serving."""

    def signatures(self) -> Mapping[str, Any]:
        """Return a `tf.function` with an input signature by name, including `serving_default`."""


def untracked(model: tf_keras.Model) -> Callable[..., Any]:
    """Return the model as a plain function, for a module that tracks the variables itself.

    If the module tracked it as a Keras model, saving would trace it several more times to let Keras
    load it.
    """
    return model.__call__


def signature(function: Callable[..., Any], inputs: Sequence[tf.TensorSpec]) -> Any:
    """Return a function of tensors as a signature. AutoGraph is off: no signature needs it."""
    return tf.function(function, input_signature=inputs, autograph=False)


def checked_inputs(
    ids: Sequence[tf.Tensor], max_length: int, min_length: int = 1
) -> dict[str, tf.Tensor]:
    """Return the encoder's inputs by name, all [..., S].

    Raises:
      InvalidArgumentError: the shapes differ, or S is not between `min_length` and `max_length`.
    """
    inputs = dict(zip(INPUTS, ids, strict=True))
    shapes = [tf.shape(value) for value in ids]
    same = f"{', '.join(INPUTS)} must have one shape."
    size = f"{', '.join(INPUTS)} must have {min_length} to {max_length} positions."
    checks = [tf.debugging.assert_equal(shape, shapes[0], same) for shape in shapes[1:]]
    checks.append(tf.debugging.assert_greater_equal(shapes[0][-1], min_length, size))
    checks.append(tf.debugging.assert_less_equal(shapes[0][-1], max_length, size))
    with tf.control_dependencies(checks):
        return {name: tf.identity(value) for name, value in inputs.items()}


def require_same_size(inputs: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
    """Return the inputs in order.

    Raises:
      InvalidArgumentError: their first dimensions differ; the message names them.
    """
    sizes = [tf.shape(value)[0] for value in inputs.values()]
    message = f"{' and '.join(inputs)} must have the same number of entries."
    checks = [tf.debugging.assert_equal(size, sizes[0], message) for size in sizes[1:]]
    with tf.control_dependencies(checks):
        return [tf.identity(value) for value in inputs.values()]
