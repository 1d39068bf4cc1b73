"""Folders in our own format: config.json, checkpoints/ and tokenizer/, as training writes them."""

import functools
import os
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.convert.bundle import (
    HEAD,
    Bundle,
    MismatchPolicy,
    Weights,
    read_variables,
    weight_shapes,
)
from albert_tf.convert.naming import Naming, numberless
from albert_tf.models.checkpoints import is_saved_model, latest_checkpoint, readable
from albert_tf.models.config import AlbertConfig
from albert_tf.models.encoder import AlbertEncoder, load_encoder
from albert_tf.models.head import HEADS, load_heads
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.predictor import task_of
from albert_tf.tasks.saving import Model, write_model
from albert_tf.tasks.task_settings import TaskSettings
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer

# A checkpoint names a weight by its attribute path, unless add_weight was given another name.
_RENAMED = {"mlm_head/bias": "mlm_head/output_bias"}
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


def read(path: str, policy: MismatchPolicy) -> Bundle:
    """Read a pretraining or fine-tuning run, a converted folder or an exported encoder.

    Raises:
      InputNotFoundError: `path` holds none of these.
      InputError: the weights differ from config.json in a way that `policy` does not allow.
    """
    if is_saved_model(path):
        (config, tensors), task = _read_exported(path), None
    else:
        config = AlbertConfig.from_json(os.path.join(path, "config.json"))
        task = None if policy.ignores(HEAD) else _task(path)
        if task is None and (heads := load_heads(path)) != HEADS:
            raise InputError(
                f"{path!r} has other pretraining heads than ALBERT's, which no converted folder "
                f"holds: {', '.join(head.layer for head in heads)}. Export its encoder, or load it "
                "with albert_tf.load_pretrainer."
            )
        tensors = _read_checkpoint(path, task)
    if task is not None and task.logit_temperature != 1:
        divisor, task = task.logit_temperature, task.replace(logit_temperature=1.0)
        tensors = {n: v / divisor if n.startswith(HEAD) else v for n, v in tensors.items()}
    tensors = {n: value for n, value in tensors.items() if not policy.ignores(n)}
    weights = _naming(config, task).to_ours(config, tensors, policy, path, task)
    values = {} if task or is_saved_model(path) else RunDir(path).config()
    evaluated_with: dict[str, Any] = {
        key: values[key] for key in ("objective", "masking") if key in values
    }
    return Bundle(config, weights, tokenizer_in(path), task, evaluated_with=evaluated_with)


def _naming(config: AlbertConfig, task: TaskSettings | None) -> Naming:
    patterns = {pattern: pattern for pattern in map(numberless, weight_shapes(config, task))}
    return Naming(patterns | _RENAMED, {}, lambda ours: False)


def _read_exported(path: str) -> tuple[AlbertConfig, Weights]:
    encoder = load_encoder(path)
    holder, names = tf.train.Checkpoint(encoder=encoder), weight_shapes(encoder.config)
    weights = {n: variable(holder, n).numpy() for n in names if n.startswith("encoder/")}
    return encoder.config, weights


def _task(path: str) -> TaskSettings | None:
    """Return the `task` section of a fine-tuned run, or None for any other folder."""
    return task_of(path) if RunDir(path).kind() in KINDS else None


def _read_checkpoint(path: str, task: TaskSettings | None) -> Weights:
    """Read the weights of the pretrainer, or of the `task`'s model, without optimizer slots."""
    parts = ("encoder/", "mlm_head/", "pair_head/") if task is None else ("encoder/", HEAD)

    def rename(name: str) -> str | None:
        ours = name.removeprefix("model/").removesuffix(_SUFFIX)
        return ours if name == f"model/{ours}{_SUFFIX}" and ours.startswith(parts) else None

    return read_variables(latest_checkpoint(path), rename)


def check(bundle: Bundle) -> list[str]:
    """Return no notes, since our own format loses nothing of a bundle."""
    return []


def write(bundle: Bundle, folder: str) -> None:
    """Write a folder that can be loaded, exported and fine-tuned like one of our runs."""
    config, task = bundle.config, bundle.task
    model: Model = AlbertPretrainer(config)
    if task is not None:
        model = KINDS[task.kind].model(AlbertEncoder(config), task)
    model.create_weights()
    for name, value in bundle.weights.items():
        variable(model, name).assign(value)
    write_model(model, folder, bundle.tokenizer, bundle.evaluated_with)


def halve(folder: str) -> None:
    """Rewrite the weights of the folder's checkpoint in half precision."""
    prefix = latest_checkpoint(folder)
    with readable(prefix) as file:
        reader = tf.train.load_checkpoint(file)
        dtypes = reader.get_variable_to_dtype_map()  # of weights, a counter and the object graph
        values = {name: reader.get_tensor(name) for name in dtypes}
    halved = {
        name: value.astype(np.float16) if dtypes[name] == tf.float32 else value
        for name, value in values.items()
    }
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(halved),
        shape_and_slices=[""] * len(halved),
        tensors=list(halved.values()),
    )


def variable(model: object, name: str) -> Any:
    """Return the variable at a path such as `encoder/stack/attentions/0/query/kernel`."""

    def child(part: Any, key: str) -> Any:
        return part[int(key)] if key.isdigit() else getattr(part, key)

    return functools.reduce(child, name.split("/"), model)


def tokenizer_in(path: str) -> Tokenizer | None:
    """Return the tokenizer of a model, None if it has none."""
    try:
        return load_tokenizer(path)
    except InputNotFoundError:
        return None
