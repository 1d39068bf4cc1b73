"""Signatures of exported modules."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf
import tf_keras


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
