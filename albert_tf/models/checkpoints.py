"""Reading trained weights: from a run folder, a converted folder or an exported encoder."""

import itertools
import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime.errors import InputError, InputNotFoundError

CHECKPOINTS = "checkpoints"
EXTRAS = "assets.extra"  # where an exported encoder keeps config.json and tokenizer/
Shapes = Mapping[str, Sequence[int]]  # of weights, by name
# What a compiled model tracks beside its weights.
_OF_TRAINING = {".OPTIMIZER_SLOT", "optimizer", "keras_api"}
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"  # how a tf.train.Checkpoint ends the name of a variable
# What TensorFlow raises for a file that is torn or has flipped bits, in names too.
DAMAGE = (tf.errors.OpError, AssertionError, IndexError, RuntimeError, ValueError)
_SHOWN = 3  # names of each kind in an error message


def has_heads(path: str) -> bool:
    """Whether the checkpoint of a run folder or converted folder holds pretraining heads."""
    names = [name for name, _ in tf.train.list_variables(latest_checkpoint(path))]
    return all(
        any(name.startswith(f"model/{head}/") for name in names)
        for head in ("mlm_head", "pair_head")
    )


def load_config(folder: str) -> AlbertConfig:
    """The model of a folder's config.json, without what was a matter of its training's memory."""
    config = AlbertConfig.from_json(os.path.join(folder, "config.json"))
    return config.replace(rematerialize=False, rematerialize_chunks=1)


def load_exported_config(path: str) -> AlbertConfig:
    """The model of an exported encoder; InputNotFoundError for another project's SavedModel."""
    folder = os.path.join(path, EXTRAS)
    if not os.path.isfile(os.path.join(folder, "config.json")):
        raise InputNotFoundError(
            f"{path!r} is a SavedModel without {EXTRAS}/config.json, which exports of albert_tf "
            "have. If it is another project's encoder for TF Hub, convert it first: "
            f"python -m albert_tf.convert --from=hub:{path} --to=FOLDER "
            "--allow_missing=mlm_head,pair_head."
        )
    return load_config(folder)


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
    """Reads the newest checkpoint of `path` into every variable of `target`; returns its name.

    Weights in half precision, as shipped models have them, become what the variables are.

    Raises:
      InputError: a variable of `target` is absent from the checkpoint or has another shape there.
    """
    checkpoint = latest_checkpoint(path)
    try:
        wrong = differences_from(target, checkpoint)
        if not wrong:
            reader = tf.train.load_checkpoint(checkpoint)
            for name, part in tracked_parts(target):
                if isinstance(part, tf.Variable):
                    part.assign(tf.cast(reader.get_tensor(name + _VALUE), part.dtype))
    except DAMAGE as error:
        wrong = textwrap.shorten(str(error), 200)  # else with the variable's values
    if wrong:
        raise InputError(
            f"checkpoint {checkpoint!r} does not fit the model of its config.json: {wrong}"
        )
    return checkpoint


def weight_differences(expected: Shapes, found: Shapes) -> str:
    """What keeps `found` from being the `expected` weights, in one line; empty where it is them."""
    kinds = {
        "missing": [f"{n} {list(s)}" for n, s in expected.items() if n not in found],
        "of another shape": [
            f"{name} {list(found[name])}, expected {list(shape)}"
            for name, shape in expected.items()
            if name in found and tuple(found[name]) != tuple(shape)
        ],
        "unexpected": [f"{n} {list(s)}" for n, s in found.items() if n not in expected],
    }
    if not any(kinds.values()):
        return ""
    listed = [f"{len(names)} {kind} ({_some(names)})" for kind, names in kinds.items() if names]
    return f"{len(expected)} weights expected, {len(found)} found; {'; '.join(listed)}."


def _some(names: list[str]) -> str:
    rest = len(names) - _SHOWN
    return "; ".join(names[:_SHOWN]) + (f"; and {rest} more" if rest > 0 else "")


def differences_from(target: tf.train.Checkpoint, checkpoint: str) -> str:
    """`weight_differences` for the layers of `target`; what else is in the file is left aside.

    Reading alone would not tell: weights that the model has no place for are passed over, such as
    those of a second group in a model with one.
    """
    found = {
        name.removesuffix(_VALUE): shape
        for name, shape in tf.train.list_variables(checkpoint)
        if name.endswith(_VALUE) and not _OF_TRAINING & set(name.split("/"))
    }
    layers, expected = [], {}
    for name, part in tracked_parts(target):
        if isinstance(part, tf_keras.layers.Layer):
            layers.append(f"{name}/")
        elif isinstance(part, tf.Variable) and name.startswith(tuple(layers)):
            expected[name] = part.shape
    inside = {name: shape for name, shape in found.items() if name.startswith(tuple(layers))}
    return weight_differences(expected, inside)


def tracked_parts(root: Any) -> Iterator[tuple[str, object]]:
    """What `root` tracks, nearest first, each once with the name that a checkpoint gives it."""
    seen, queue = {id(root)}, [("", root)]
    for above, parent in queue:
        for name, child in tf.train.TrackableView.children(parent).items():
            if id(child) not in seen:
                seen.add(id(child))
                queue.append((f"{above}{name}/", child))
                yield above + name, child


def read_exported(encoder: tf_keras.Model, path: str) -> None:
    """Gives `encoder` the weights of an exported one.

    Raises:
      InputError: the SavedModel is damaged, or is no encoder of the same shape.
    """
    try:
        exported = tf.saved_model.load(path)
    except RuntimeError:  # operations of tensorflow_text: it takes text, not ids
        exported = None
    except (IndexError, OSError, ValueError, tf.errors.OpError) as error:
        raise InputError(
            f"{path!r} must be a whole SavedModel: {textwrap.shorten(str(error), 200)}. Copy or "
            "export it again."
        ) from None
    if not callable(exported) or not hasattr(exported, "variables"):
        raise InputError(
            f"{path!r} is a SavedModel, but no encoder: pass the run folder that it was exported "
            "from, or export that with --kind=encoder."
        )
    set_variables(encoder, exported.variables, path)


def set_variables(encoder: tf_keras.Model, values: list[tf.Variable], path: str) -> None:
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
