"""Our own folders: config.json, checkpoints/ and tokenizer/, as pretraining leaves them."""

import functools
import os
from typing import Any

import tensorflow as tf

from albert_tf import outputs, settings
from albert_tf.checkpoints import CHECKPOINTS, load_encoder, load_pretrainer
from albert_tf.convert.bundle import Bundle, Leniency, weight_shapes
from albert_tf.errors import InputNotFoundError
from albert_tf.pretrainer import AlbertPretrainer
from albert_tf.tokenization import Tokenizer, load_tokenizer


def read(path: str, leniency: Leniency) -> Bundle:
    """A run folder, a converted folder or an exported encoder.

    Where both heads may be missing, only the encoder is read.

    Raises: as `albert_tf.load_pretrainer`.
    """
    heads = {"mlm_head", "pair_head"}
    if heads <= set(leniency.allow_missing):
        encoder = load_encoder(path)
        holder, config = tf.train.Checkpoint(encoder=encoder), encoder.config
    else:
        holder = load_pretrainer(path)
        config = holder.config
    weights = {
        name: variable(holder, name).numpy()
        for name in weight_shapes(config)
        if hasattr(holder, name.split("/")[0])
    }
    return Bundle(config, weights, _tokenizer(path))


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
