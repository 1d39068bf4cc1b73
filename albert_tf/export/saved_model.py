"""Exported modules as OUTPUT/VERSION/saved_model.pb."""

import os
import shutil

import tensorflow as tf

from albert_tf.export import serving
from albert_tf.export.constant_stack import use_constants
from albert_tf.export.format import Format, Request
from albert_tf.graph.signatures import ServedModule
from albert_tf.models.checkpoints import require_readable
from albert_tf.models.config import EXTRAS, AlbertConfig
from albert_tf.runtime.files import outputs
from albert_tf.runtime.run_dir import RunDir
from albert_tf.text.tokenizer import Tokenizer


class SavedModel(Format):
    """A SavedModel with the configuration of TF Serving."""

    about = "texts in, for TensorFlow and TF Serving"
    file = "saved_model.pb"
    options = ("depths", "patience", "precision")

    def check(self, folder: str) -> None:
        """Check also that TensorFlow can read such a path."""
        super().check(folder)
        require_readable(folder, "--output")
        serving.load_messages()

    def build(self, request: Request) -> ServedModule:
        """Return the module to save."""
        model = request.export.load(request.run.path)
        if request.export.may_use_constants:
            use_constants(request.export.encoder_of(model))
        return request.export.module(model, request.tokenizer, request.values)

    def write(self, built: ServedModule, request: Request, folder: str) -> None:
        """Write what `save` does, after the server's configuration beside it."""
        serving.write_configuration(os.path.dirname(folder))  # a version is never written again
        save(built, folder, request.tokenizer, request.run.config_path)


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
