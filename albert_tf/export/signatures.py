"""Signatures of exported modules, and saving them as OUTPUT/VERSION/saved_model.pb."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf
import tf_keras

from albert_tf.export import serving
from albert_tf.models.checkpoints import EXTRAS
from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import outputs
from albert_tf.runtime.run_dir import RunDir
from albert_tf.text.tokenizer import Tokenizer


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


def save(module: ServedModule, folder: str, tokenizer: Tokenizer, config_path: str) -> None:
    """Write a SavedModel with the tokenizer, config.json and warm-up requests in assets.extra.

    The folder appears only when it is complete.

    Raises:
      InputError: `folder` exists and is not empty, or it cannot be written.
    """
    with outputs.new_folder(folder) as partial:
        signatures = module.signatures()
        tf.saved_model.save(module, partial, signatures=dict(signatures))
        extras = os.path.join(partial, EXTRAS)
        tokenizer.save(os.path.join(extras, "tokenizer"))
        shutil.copyfile(config_path, os.path.join(extras, "config.json"))
        max_length = RunDir(os.path.dirname(config_path)).section("task").get("seq_length")
        max_length = max_length or AlbertConfig.from_json(config_path).max_positions
        serving.write_warm_up(extras, signatures, tokenizer, max_length)
