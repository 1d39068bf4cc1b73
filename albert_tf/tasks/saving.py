"""Saving a model as a folder that the library and the commands load, like one of their own runs."""

import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from albert_tf.models.encoder import AlbertEncoder
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs, paths
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.task_model import TaskModel
from albert_tf.text.tokenizer import Tokenizer

Model = TaskModel | AlbertPretrainer | AlbertEncoder


def save_model(model: Model, path: str | os.PathLike[str], tokenizer: Tokenizer) -> None:
    """Save a model that you trained in your own script, as `finetuning.train` saves a run.

    >>> from albert_tf.tasks.kinds import KINDS
    >>> kind, start = KINDS["classifier"], "albert-mini-en"
    >>> model = kind.model(albert_tf.load_encoder(start), kind.settings(labels=("bad", "good")))
    >>> albert_tf.save_model(model, "runs/mine", albert_tf.load_tokenizer(start))  # after model.fit
    >>> sorted(albert_tf.load_predictor("runs/mine")(["a gripping story"])[0])
    ['label', 'probabilities', 'score']

    The folder can be loaded, exported and fine-tuned further. It has the weights in float32, as the
    model has, but not the optimizer's state nor which layers are frozen: to continue training where
    it stopped, use `model.save("model.keras")`.

    Args:
      model: a task model, an `AlbertPretrainer` or an `AlbertEncoder`, also a compiled one.
      path: the folder to create; it appears when it is complete.
      tokenizer: the tokenizer that made the model's ids; see `load_tokenizer`.

    Raises:
      InputError: `model` is of another class or its encoder is not an `AlbertEncoder`, its
        `task.seq_length` exceeds the encoder's positions, `tokenizer` has another number of pieces
        than the model, or `path` exists and is not an empty folder.
      MachineError: the folder cannot be written.
    """
    tasks = (kind.model for kind in KINDS.values())
    classes: tuple[type, ...] = (AlbertEncoder, AlbertPretrainer, *tasks)
    if not isinstance(model, classes):
        raise InputError(
            "`model` must be an AlbertEncoder, an AlbertPretrainer or a task model. Received: "
            f"{type(model).__name__}. Save others with model.save."
        )
    _, sections = model.as_run()
    expected = sections["model"]["vocab_size"]
    if not isinstance(tokenizer, Tokenizer) or tokenizer.vocab_size != expected:
        size = f", of {tokenizer.vocab_size:,} pieces" if isinstance(tokenizer, Tokenizer) else ""
        raise InputError(
            "`tokenizer` must be the albert_tf tokenizer that made the model's ids, of "
            f"{expected:,} pieces. Received: {type(tokenizer).__name__}{size}. Pass "
            "albert_tf.load_tokenizer(PATH), where PATH is what the encoder was loaded from."
        )
    with outputs.new_folder(paths.expand(os.fspath(path)), "`path`") as folder:
        write_model(model, folder, tokenizer, {})


def write_model(
    model: Model, folder: str, tokenizer: Tokenizer | None, more: Mapping[str, Any]
) -> None:
    """Write the files of `save_model` into a folder, with `more` sections in config.json."""
    run, (weights, sections) = RunDir(folder), model.as_run()
    model.create_weights()
    tf.train.Checkpoint(model=weights).save(os.path.join(run.checkpoints_path, "ckpt"))
    if tokenizer:
        tokenizer.save(run.tokenizer_path)
    outputs.write_json(run.config_path, {**sections, **more})
