"""What every export shares: how a module becomes OUTPUT/VERSION/saved_model.pb."""

import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import tensorflow as tf
import tf_keras

from albert_tf import outputs
from albert_tf.checkpoints import EXTRAS
from albert_tf.tokenization import Tokenizer


class ServedModule(Protocol):
    """A trackable module that says which signatures TF Serving offers."""

    def signatures(self) -> Mapping[str, object]:
        """Signature name -> `tf.function` with fixed input names."""


def untracked(model: tf_keras.Model) -> Callable[..., Any]:
    """The model as a plain function, for a module that tracks the model's variables by itself.

    Tracked as a Keras model it would be traced several times more, for a Keras that is to load it.
    """
    return model.__call__


def save(module: ServedModule, folder: str, tokenizer: Tokenizer, config_path: str) -> None:
    """Writes a SavedModel with the tokenizer and config.json in assets.extra.

    The folder appears when it is complete.

    Raises:
      InputError: `folder` exists and is not empty, or cannot be written.
    """
    with outputs.new_folder(folder) as work:
        tf.saved_model.save(module, work, signatures=dict(module.signatures()))
        extras = os.path.join(work, EXTRAS)
        tokenizer.save(os.path.join(extras, "tokenizer"))
        shutil.copyfile(config_path, os.path.join(extras, "config.json"))
