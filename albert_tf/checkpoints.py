"""Loading trained weights: a run folder, a converted folder or an exported encoder."""

import itertools
import os
import textwrap

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.encoder import AlbertEncoder
from albert_tf.errors import InputError, InputNotFoundError
from albert_tf.pretrainer import AlbertPretrainer

CHECKPOINTS = "checkpoints"
EXTRAS = "assets.extra"  # where an exported encoder keeps config.json and tokenizer/


def load_encoder(path: str) -> AlbertEncoder:
    """The trained encoder in a run folder, a converted folder or an exported encoder.

    Raises:
      InputNotFoundError: nothing of the kind at `path`.
      InputError: the checkpoint holds other weights than config.json describes.
    """
    if is_saved_model(path):
        return _load_exported(path)
    encoder = AlbertEncoder(AlbertConfig.from_json(os.path.join(path, "config.json")))
    encoder.create_weights()
    read_checkpoint(tf.train.Checkpoint(model=tf.train.Checkpoint(encoder=encoder)), path)
    return encoder


def load_pretrainer(path: str) -> AlbertPretrainer:
    """The encoder with its pretraining heads, from a run folder or a converted folder.

    Raises: as `load_encoder`; an exported encoder has no heads and is refused.
    """
    if is_saved_model(path):
        raise InputError(f"{path!r} is an exported encoder, without heads: pass its run folder.")
    pretrainer = AlbertPretrainer(AlbertConfig.from_json(os.path.join(path, "config.json")))
    pretrainer.create_weights()
    read_checkpoint(tf.train.Checkpoint(model=pretrainer), path)
    return pretrainer


def is_saved_model(path: str) -> bool:
    """Whether `path` is the folder of a SavedModel."""
    return os.path.isfile(os.path.join(path, "saved_model.pb"))


def latest_checkpoint(path: str) -> str:
    """The newest checkpoint under `path`/checkpoints.

    Raises:
      InputNotFoundError: there is none.
    """
    found = tf.train.latest_checkpoint(os.path.join(path, CHECKPOINTS))
    if found is None:
        raise InputNotFoundError(
            f"no checkpoint in {os.path.join(path, CHECKPOINTS)!r} "
            f"(working folder {os.getcwd()}): has the run saved one yet?"
        )
    return found


def read_checkpoint(target: tf.train.Checkpoint, path: str) -> str:
    """Reads the newest checkpoint of `path` into every object of `target`; returns its name.

    Raises:
      InputError: a variable of `target` is absent from the checkpoint or has another shape there.
    """
    checkpoint = latest_checkpoint(path)
    try:
        target.read(checkpoint).assert_existing_objects_matched().expect_partial()
    except (AssertionError, ValueError, tf.errors.OpError) as error:
        reason = textwrap.shorten(str(error), 200)  # else with the variable's values
        raise InputError(
            f"checkpoint {checkpoint!r} does not fit the model of its config.json: {reason}"
        ) from None
    return checkpoint


def _load_exported(path: str) -> AlbertEncoder:
    config_path = os.path.join(path, EXTRAS, "config.json")
    encoder = AlbertEncoder(AlbertConfig.from_json(config_path)).create_weights()
    try:
        exported = tf.saved_model.load(path)
    except RuntimeError:  # operations of tensorflow_text: it takes text, not ids
        exported = None
    if not callable(exported) or not hasattr(exported, "variables"):
        raise InputError(
            f"{path!r} is a SavedModel, but no encoder: pass the run folder that it was exported "
            "from, or export that with --kind=encoder."
        )
    set_variables(encoder, exported.variables, path)
    return encoder


def set_variables(encoder: AlbertEncoder, values: list[tf.Variable], path: str) -> None:
    """Copies `values`, in the order of `encoder.variables`, as an exported encoder lists them.

    Raises:
      InputError: the shapes differ.
    """
    expected = [tuple(v.shape) for v in encoder.variables]
    found = [tuple(v.shape) for v in values]
    if expected != found:
        differing = [pair for pair in itertools.zip_longest(expected, found) if len(set(pair)) > 1]
        raise InputError(
            f"{path!r} must hold the {len(expected)} weights that its config describes. Received "
            f"{len(found)}; the first that differs should be {differing[0][0]} and is "
            f"{differing[0][1]}."
        )
    for variable, value in zip(encoder.variables, values, strict=True):
        variable.assign(value)
