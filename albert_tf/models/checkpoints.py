"""Readers of trained weights in a run folder, a converted folder or an exported encoder."""

import contextlib
import glob
import hashlib
import itertools
import os
import re
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.models.config import EXTRAS, AlbertConfig
from albert_tf.models.head import load_heads
from albert_tf.runtime.errors import InputError, InputNotFoundError, reading
from albert_tf.runtime.files.paths import require_file
from albert_tf.runtime.run_dir import RunDir

CHECKPOINTS = "checkpoints"
Shapes = Mapping[str, Sequence[int]]  # weight name -> shape
# Tracked by a compiled model in addition to its weights.
_NOT_WEIGHTS = {".OPTIMIZER_SLOT", "optimizer", "keras_api"}
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"  # suffix of variable names in a tf.train.Checkpoint
_EXPORTED = re.compile(f"variables/[0-9]+{_VALUE}")  # weights of an exported encoder, in order
# Raised by TensorFlow for a file that is truncated or has flipped bits, including bits of names.
DAMAGE = (tf.errors.OpError, AssertionError, IndexError, RuntimeError, ValueError)
# TensorFlow reads from a path as from a glob; with these characters, it does not match itself.
_UNREADABLE = re.compile(r"[\[\\]")
_SHOWN = 3  # names of each kind in an error message


def has_heads(path: str, some: bool = False) -> bool:
    """Return True if the checkpoint of a run or converted folder contains the pretraining heads.

    With `some`, one of them is enough.

    Raises:
      InputError: there is no checkpoint, or it is damaged.
    """
    prefix = latest_checkpoint(path)
    with readable(prefix) as checkpoint:
        try:
            names = [name for name, _ in tf.train.list_variables(checkpoint)]
        except DAMAGE as error:
            reason = textwrap.shorten(str(error), 200)
            raise InputError(f"{prefix!r} is not a readable checkpoint: {reason}") from None
    return (any if some else all)(
        any(name.startswith(f"model/{layer}/") for name in names)
        for layer in (head.layer for head in load_heads(path))
    )


def load_config(folder: str) -> AlbertConfig:
    """Return the model of a folder's config.json, with rematerialization off.

    Rematerialization only saves memory in training.
    """
    config = AlbertConfig.from_json(folder)
    return config.replace(rematerialize=False, rematerialize_chunks=1)


def load_exported_config(path: str) -> AlbertConfig:
    """Return the model of an exported encoder.

    Raises:
      InputNotFoundError: the SavedModel was not exported by albert_tf.
    """
    folder = os.path.join(path, EXTRAS)
    if not os.path.isfile(os.path.join(folder, "config.json")):
        raise InputNotFoundError(
            f"{path!r} is a SavedModel without {EXTRAS}/config.json, which every export of "
            "albert_tf has. If it is another project's TF Hub encoder, convert it first: "
            f"python -m albert_tf.convert --from=hub:{path} --to=FOLDER "
            "--allow_missing=mlm_head,pair_head."
        )
    return load_config(folder)


def is_saved_model(path: str) -> bool:
    """Return True if `path` is the folder of a SavedModel."""
    return os.path.isfile(os.path.join(path, "saved_model.pb"))


def latest_checkpoint(path: str) -> str:
    """Return the path of the newest checkpoint under `path`/checkpoints.

    Raises:
      InputNotFoundError: there is no checkpoint.
    """
    latest = latest_in(os.path.join(path, CHECKPOINTS))
    if latest is None:
        raise InputNotFoundError(
            f"no checkpoint in {os.path.join(path, CHECKPOINTS)!r} "
            f"(working directory {os.getcwd()}). Has the run saved one yet?"
        )
    return latest


def latest_in(folder: str) -> str | None:
    """Return what `tf.train.latest_checkpoint` returns, for a folder of any name.

    Raises:
      InputError: the file that names the checkpoints is damaged, or a Git LFS pointer.
    """
    file = os.path.join(folder, "checkpoint")
    if not os.path.isfile(file):
        return None
    with reading(file):
        try:
            state = tf.train.get_checkpoint_state(folder)
        except ValueError:  # not UTF-8, or without a name
            state = None
    if state is None:
        raise InputError(
            f"{file!r} must name the newest checkpoint as TensorFlow writes it, but is damaged. "
            "Copy it again."
        )
    path: str = state.model_checkpoint_path
    return path if os.path.isfile(f"{path}.index") else None


@contextlib.contextmanager
def readable(path: str) -> Iterator[str]:
    """Yield a path of the same checkpoint or SavedModel that TensorFlow can read.

    Where the path itself is not, a temporary link replaces its folders.

    Raises:
      InputError: one of the files is a Git LFS pointer, a pipe or a device.
    """
    for pattern in (".index", ".data-*", "/**/*"):  # of a checkpoint; in the folder of a SavedModel
        for file in glob.glob(glob.escape(path) + pattern, recursive=True):
            if not os.path.isdir(file):
                require_file(file, "")
                with reading(file):
                    pass  # it is no Git LFS pointer
    if not _UNREADABLE.search(path):
        yield path
        return
    folder, name = os.path.split(os.path.abspath(path))
    with tempfile.TemporaryDirectory() as temporary:
        link = os.path.join(temporary, "link")
        os.symlink(folder, link)
        yield os.path.join(link, name)


def require_readable(path: str, flag: str) -> None:
    """Check that TensorFlow will be able to read a SavedModel from `path`.

    Raises:
      InputError: it will not.
    """
    if _UNREADABLE.search(path):
        raise InputError(
            f"{flag} must be a path without `[` and `\\`, with which TensorFlow cannot load a "
            f"SavedModel. Received: {path!r}. Name another folder."
        )


def note_unfinished(path: str) -> None:
    """Print which checkpoint is used if `path` is a run that has not ended."""
    if RunDir(path).is_unfinished:
        print(f"{path} has not ended: using {latest_checkpoint(path)}.")


def weights_fingerprint(path: str) -> str:
    """Return 16 hex digits that change with the weights of a run, a converted folder or an export.

    They are a hash of the index, which has a checksum of every tensor.
    """
    weights = os.path.join(path, "variables", "variables")
    prefix = weights if is_saved_model(path) else latest_checkpoint(path)
    with open(f"{prefix}.index", "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def read_checkpoint(target: tf.train.Checkpoint, path: str) -> str:
    """Load the newest checkpoint of `path` into every variable of `target`; return its path.

    Weights in half precision, as in the included models, are cast to the dtypes of the variables.

    Raises:
      InputError: the checkpoint is damaged, or its weights differ from those of `target` in names
        or shapes.
    """
    checkpoint = latest_checkpoint(path)
    with readable(checkpoint) as file:
        try:
            wrong = differences_from(target, file)
            if not wrong:
                _assign_all(target, tf.train.load_checkpoint(file))
        except DAMAGE as error:
            wrong = textwrap.shorten(str(error), 200)  # the full text may hold a whole variable
    if wrong:
        raise InputError(
            f"checkpoint {checkpoint!r} does not fit the model of its config.json: {wrong}"
        )
    return checkpoint


def _assign_all(target: tf.train.Checkpoint, reader: Any) -> None:
    for name, part in tracked_parts(target):
        if isinstance(part, tf.Variable):
            value = reader.get_tensor(name + _VALUE)
            part.assign(value.astype(part.dtype.as_numpy_dtype))


def weight_differences(expected: Shapes, actual: Shapes) -> str:
    """Return the differences between `actual` and `expected` in one line; empty without any."""
    kinds = {
        "missing": [f"{n} {list(s)}" for n, s in expected.items() if n not in actual],
        "of another shape": [
            f"{name} {list(actual[name])}, expected {list(shape)}"
            for name, shape in expected.items()
            if name in actual and tuple(actual[name]) != tuple(shape)
        ],
        "unexpected": [f"{n} {list(s)}" for n, s in actual.items() if n not in expected],
    }
    if not any(kinds.values()):
        return ""
    listed = [f"{len(names)} {kind} ({_some(names)})" for kind, names in kinds.items() if names]
    return f"{len(expected)} weights expected, {len(actual)} found; {'; '.join(listed)}."


def _some(names: list[str]) -> str:
    rest = len(names) - _SHOWN
    return "; ".join(names[:_SHOWN]) + (f"; and {rest} more" if rest > 0 else "")


def differences_from(target: tf.train.Checkpoint, checkpoint: str) -> str:
    """Return the `weight_differences` between the layers of `target` and a checkpoint.

    Variables of the checkpoint outside these layers are ignored. Loading alone would not detect
    every difference: it skips weights that the model has no variable for, such as those of a second
    group in a model with one group.
    """
    shapes = {
        name.removesuffix(_VALUE): shape
        for name, shape in tf.train.list_variables(checkpoint)
        if name.endswith(_VALUE) and not _NOT_WEIGHTS & set(name.split("/"))
    }
    layers, expected = [], {}
    for name, part in tracked_parts(target):
        if isinstance(part, tf_keras.layers.Layer):
            layers.append(f"{name}/")
        elif isinstance(part, tf.Variable) and name.startswith(tuple(layers)):
            expected[name] = part.shape
    inside = {name: shape for name, shape in shapes.items() if name.startswith(tuple(layers))}
    return weight_differences(expected, inside)


def tracked_parts(root: Any) -> Iterator[tuple[str, object]]:
    """Yield each object that `root` tracks once, with its checkpoint name, breadth first."""
    seen, queue = {id(root)}, [("", root)]
    for above, parent in queue:
        for name, child in tf.train.TrackableView.children(parent).items():
            if id(child) not in seen:
                seen.add(id(child))
                queue.append((f"{above}{name}/", child))
                yield above + name, child


def weights_of(model: tf_keras.Model) -> tf.train.Checkpoint:
    """Return a checkpoint of the model's layers.

    A compiled model itself also tracks its optimizer.
    """
    layers = {
        name: child
        for name, child in tf.train.TrackableView.children(model).items()
        if isinstance(child, tf_keras.layers.Layer) and name in vars(model)
    }
    return tf.train.Checkpoint(**layers)


def read_exported(encoder: tf_keras.Model, path: str) -> None:
    """Load the weights of an exported encoder into `encoder`, without its graphs.

    Raises:
      InputError: the SavedModel is damaged, or is not an encoder of the same shape.
    """
    with readable(path) as folder:
        try:
            reader = tf.train.load_checkpoint(os.path.join(folder, "variables", "variables"))
            names = [n for n in reader.get_variable_to_shape_map() if _EXPORTED.fullmatch(n)]
            names.sort(key=lambda name: int(name.split("/")[1]))
            values = [reader.get_tensor(name) for name in names]
        except DAMAGE as error:
            raise damaged_export(path, error) from None
    if not values:
        raise InputError(
            f"{path!r} is a SavedModel but not an encoder. Pass the run folder that it was "
            "exported from, or export that run with --kind=encoder."
        )
    set_variables(encoder, values, path)


def damaged_export(path: str, error: Exception) -> InputError:
    """Return the error that names a SavedModel that cannot be read."""
    return InputError(
        f"{path!r} must be an intact SavedModel: {textwrap.shorten(str(error), 200)}. Copy or "
        "export it again."
    )


def set_variables(encoder: tf_keras.Model, values: Sequence[Any], path: str) -> None:
    """Copy `values`, arrays or variables of an exported encoder, into `encoder.variables` in order.

    Raises:
      InputError: the numbers or the shapes of the variables differ.
    """
    expected = [tuple(v.shape) for v in encoder.variables]
    actual = [tuple(v.shape) for v in values]
    if expected != actual:
        differing = [pair for pair in itertools.zip_longest(expected, actual) if len(set(pair)) > 1]
        raise InputError(
            f"{path!r} must contain the {len(expected)} weights that its config describes. "
            f"Received: {len(actual)} weights; the first that differs should have the shape "
            f"{differing[0][0]} and has {differing[0][1]}."
        )
    for variable, value in zip(encoder.variables, values, strict=True):
        variable.assign(value)
