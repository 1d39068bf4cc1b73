"""A trained model at rest: configuration, weights by name, tokenizer, and what it was tuned for."""

import dataclasses
import glob
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.models.checkpoints import DAMAGE
from albert_tf.models.config import AlbertConfig, sharing_plan
from albert_tf.runtime.errors import InputError
from albert_tf.text.tokenizer import Tokenizer

# Arrays by attribute path below an AlbertPretrainer, or below a task model, whose head's begin with
# HEAD: "encoder/stack/attentions/0/query/kernel".
Weights = Mapping[str, np.ndarray]
HEAD = "head/"
# What a checkpoint may lack if the command says so: name -> path of the weights.
OPTIONAL = {"mlm_head": "mlm_head/", "pair_head": "pair_head/", "pooler": "encoder/pooler/"}


@dataclasses.dataclass(frozen=True)
class Bundle:
    """What a folder of any format holds; parts of OPTIONAL may be absent from `weights`.

    task: the `task` section of a fine-tuned model; None for a pretrained one.
    assumed: keys of `task` that the source does not state, and that have our defaults.
    """

    config: AlbertConfig
    weights: Weights
    tokenizer: Tokenizer | None
    task: Any = None
    assumed: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class MismatchPolicy:
    """Which differences between a checkpoint and its model are deliberate.

    Attributes:
      allow_missing: names of OPTIONAL that a checkpoint may lack.
      ignore: foreign weights whose names begin so, and configuration keys of that name, are left
        behind.
    """

    allow_missing: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.allow_missing:
            if name not in OPTIONAL:
                raise InputError(
                    f"--allow_missing takes {', '.join(OPTIONAL)}. Received: {name!r}."
                )

    def allows_missing(self, name: str) -> bool:
        """Whether the weight called `name` (ours) may be absent."""
        return name.startswith(tuple(OPTIONAL[part] for part in self.allow_missing))

    def ignores(self, name: str) -> bool:
        """Whether the weight or key called `name` (theirs) is left behind."""
        return name.startswith(self.ignore)


def read_variables(prefix: str, rename: Callable[[str], str | None]) -> dict[str, np.ndarray]:
    """The variables of a TensorFlow checkpoint under the names of `rename`; None leaves one behind.

    Raises:
      InputError: no readable checkpoint.
    """
    if glob.escape(prefix) != prefix:
        raise InputError(
            "TensorFlow takes `*`, `?` and `[` in a checkpoint's path for a pattern: rename it. "
            f"Received: {prefix!r}."
        )
    try:
        reader = tf.train.load_checkpoint(prefix)
        names = {name: rename(name) for name in reader.get_variable_to_shape_map()}
        return {new: _full(reader.get_tensor(name)) for name, new in names.items() if new}
    except DAMAGE as error:
        raise InputError(f"{prefix!r} is no readable checkpoint: {str(error)[:200]}") from None


def _full(value: Any) -> Any:
    """A weight in half precision, as shipped models have them, as float32."""
    return value.astype(np.float32) if getattr(value, "dtype", None) == np.float16 else value


def weight_shapes(config: AlbertConfig, task: Any = None) -> dict[str, tuple[int, ...]]:
    """Every weight by attribute path, with its shape.

    Of `AlbertPretrainer(config)`; with the `task` section of a fine-tuned run, of its task model.
    """
    heads = _pretraining_head_shapes(config) if task is None else head_shapes(config, task)
    return _encoder_shapes(config) | heads


def head_shapes(config: AlbertConfig, task: Any) -> dict[str, tuple[int, ...]]:
    """The weights of a task's head by attribute path, with their shapes."""
    hidden = config.hidden_size
    if task.kind != "span":
        return _dense("head", hidden, len(getattr(task, "labels", "1")))
    if not task.answerable:
        return _dense("head/dense", hidden, 2)
    shapes = _dense("head/start_logits", hidden, 1)
    shapes |= _dense("head/end_logits/dense_0", 2 * hidden, hidden)
    shapes |= _norm("head/end_logits/layer_norm", hidden)
    shapes |= _dense("head/end_logits/dense_1", hidden, 1)
    shapes |= _dense("head/answer_class/dense_0", 2 * hidden, hidden)
    return shapes | {"head/answer_class/dense_1/kernel": (hidden, 1)}


def _pretraining_head_shapes(config: AlbertConfig) -> dict[str, tuple[int, ...]]:
    e, h, v = config.embedding_size, config.hidden_size, config.vocab_size
    shapes = _dense("mlm_head/transform", h, e) | _norm("mlm_head/layer_norm", e)
    return shapes | {"mlm_head/bias": (v,)} | _dense("pair_head/dense", h, 2)


def _encoder_shapes(config: AlbertConfig) -> dict[str, tuple[int, ...]]:
    e, h, f = config.embedding_size, config.hidden_size, config.inner_size
    first = f if config.ffn == "plain" else 2 * f  # with the gate's
    shapes: dict[str, tuple[int, ...]] = {
        "encoder/embeddings/word_embeddings": (config.vocab_size, e),
        "encoder/embeddings/type_embeddings": (config.type_vocab_size, e),
    }
    if config.positions == "learned":
        shapes["encoder/embeddings/position_embeddings"] = (config.max_positions, e)
    shapes |= _norm("encoder/embeddings/layer_norm", e)
    if e != h:
        shapes |= _dense("encoder/embeddings/projection", e, h)
    plan = sharing_plan(config)
    for i in sorted({layer.attention for layer in plan}):
        for name in ("query", "key", "value", "output_dense"):
            shapes |= _dense(f"encoder/stack/attentions/{i}/{name}", h, h)
        shapes |= _norm(f"encoder/stack/attentions/{i}/layer_norm", h)
    for i in sorted({layer.ffn for layer in plan}):
        shapes |= _dense(f"encoder/stack/feed_forwards/{i}/intermediate", h, first)
        shapes |= _dense(f"encoder/stack/feed_forwards/{i}/output_dense", f, h)
        shapes |= _norm(f"encoder/stack/feed_forwards/{i}/layer_norm", h)
    if config.norm == "pre":
        shapes |= _norm("encoder/stack/output_layer_norm", h)
    return shapes | _dense("encoder/pooler", h, h)


def _dense(name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/kernel": (rows, columns), f"{name}/bias": (columns,)}


def _norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/gamma": (width,), f"{name}/beta": (width,)}


def with_initialized_parts(
    config: AlbertConfig, weights: Weights, task: Any = None
) -> dict[str, np.ndarray]:
    """`weights` completed: what is absent gets the initial value that training begins with.

    Kernels are truncated normal of `initializer_range`, keyed by their names: the same every time.
    """
    complete = dict(weights)
    for name, shape in weight_shapes(config, task).items():
        if name in complete:
            continue
        if name.endswith("/kernel"):
            key = [0, zlib.crc32(name.encode()) >> 1]
            values = tf.random.stateless_truncated_normal(shape, key, 0.0, config.initializer_range)
            complete[name] = values.numpy()
        else:
            complete[name] = np.full(shape, float(name.endswith("/gamma")), np.float32)
    return complete
