"""Our own folders: config.json, checkpoints/ and tokenizer/, as pretraining leaves them."""

import functools
import os
from typing import Any

import tensorflow as tf

from albert_tf import outputs, settings
from albert_tf.checkpoints import CHECKPOINTS, is_saved_model, latest_checkpoint, load_encoder
from albert_tf.config import AlbertConfig
from albert_tf.convert.bundle import Bundle, Leniency, Weights, read_variables, weight_shapes
from albert_tf.convert.naming import Naming, numberless
from albert_tf.errors import InputNotFoundError
from albert_tf.pretrainer import AlbertPretrainer
from albert_tf.tokenization import Tokenizer, load_tokenizer

# In a checkpoint a weight is called as its attribute path, unless it was added under another name.
NAMING = Naming(
    {pattern: pattern for pattern in map(numberless, weight_shapes(AlbertConfig()))}
    | {"mlm_head/bias": "mlm_head/output_bias"},
    {},
    lambda ours: False,
)
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


def read(path: str, leniency: Leniency) -> Bundle:
    """A run folder, a converted folder or an exported encoder.

    Raises:
      InputNotFoundError: nothing of the kind at `path`.
      InputError: other weights than config.json describes, but for what `leniency` allows.
    """
    config, found = _exported(path) if is_saved_model(path) else _saved(path)
    found = {n: value for n, value in found.items() if not n.startswith(leniency.ignore)}
    return Bundle(config, NAMING.to_ours(config, found, leniency, path), _tokenizer(path))


def _exported(path: str) -> tuple[AlbertConfig, Weights]:
    encoder = load_encoder(path)
    holder, names = tf.train.Checkpoint(encoder=encoder), weight_shapes(encoder.config)
    found = {n: variable(holder, n).numpy() for n in names if n.startswith("encoder/")}
    return encoder.config, found


def _saved(path: str) -> tuple[AlbertConfig, Weights]:
    """What a checkpoint holds of a pretrainer; slots and a task's head are left behind."""
    parts = ("encoder/", "mlm_head/", "pair_head/")

    def rename(name: str) -> str | None:
        ours = name.removeprefix("model/").removesuffix(_SUFFIX)
        return ours if name == f"model/{ours}{_SUFFIX}" and ours.startswith(parts) else None

    config = AlbertConfig.from_json(os.path.join(path, "config.json"))
    return config, read_variables(latest_checkpoint(path), rename)


def check(bundle: Bundle) -> list[str]:
    """Nothing of a bundle is lost in our own format."""
    return []


def write(bundle: Bundle, folder: str) -> None:
    """Writes a folder that is loaded, exported and fine-tuned from as a pretraining run is."""
    model = AlbertPretrainer(bundle.config).create_weights()
    for name, value in bundle.weights.items():
        variable(model, name).assign(value)
    tf.train.Checkpoint(model=model).save(os.path.join(folder, CHECKPOINTS, "ckpt"))
    if bundle.tokenizer:
        bundle.tokenizer.save(os.path.join(folder, "tokenizer"))
    config = {"model": settings.to_dict(bundle.config), "task": {"kind": "pretraining"}}
    outputs.write_json(os.path.join(folder, "config.json"), config)


def variable(model: object, name: str) -> Any:
    """The variable at an attribute path such as `encoder/stack/attentions/0/query/kernel`."""

    def step(part: Any, key: str) -> Any:
        return part[int(key)] if key.isdigit() else getattr(part, key)

    return functools.reduce(step, name.split("/"), model)


def _tokenizer(path: str) -> Tokenizer | None:
    try:
        return load_tokenizer(path)
    except InputNotFoundError:
        return None
