"""Bundle: the configuration, named weights, tokenizer and task of a trained model."""

import dataclasses
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.models.checkpoints import DAMAGE, readable
from albert_tf.models.config import AlbertConfig, sharing_plan
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.task_settings import TaskSettings
from albert_tf.text.tokenizer import Tokenizer

# Arrays by attribute path, such as "encoder/stack/attentions/0/query/kernel", in an
# AlbertPretrainer or a task model. In a task model, the head's paths start with HEAD.
Weights = Mapping[str, np.ndarray]
HEAD = "head/"
PIECES = ("encoder/embeddings/word_embeddings", "mlm_head/bias")  # a row for each piece
# Parts that a checkpoint may lack if the command allows it: name -> prefix of the weights' paths.
OPTIONAL = {"mlm_head": "mlm_head/", "pair_head": "pair_head/", "pooler": "encoder/pooler/"}


@dataclasses.dataclass(frozen=True)
class Bundle:
    """The contents of a model folder in any format.

    Attributes:
      config: of the encoder.
      weights: without the parts of OPTIONAL that the folder lacks.
      tokenizer: None if the folder has none.
      task: the `task` section of a fine-tuned model; None for a pretrained one.
      assumed: keys of `task` that the source does not state; they have our defaults.
      evaluated_with: the sections `objective` and `masking` of a pretraining run of ours, which
        `pretraining.evaluate` uses.
    """

    config: AlbertConfig
    weights: Weights
    tokenizer: Tokenizer | None
    task: TaskSettings | None = None
    assumed: tuple[str, ...] = ()
    evaluated_with: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class MismatchPolicy:
    """The differences between a checkpoint and its model that are intended.

    Attributes:
      allow_missing: names of the parts in OPTIONAL that a checkpoint may lack.
      ignore: prefixes of the source's weights, and names of its configuration keys, to skip.
    """

    allow_missing: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.allow_missing:
            if name not in OPTIONAL:
                raise InputError(
                    f"--allow_missing must list parts among {', '.join(OPTIONAL)}. "
                    f"Received: {name!r}."
                )

    def allows_missing(self, name: str) -> bool:
        """Return True if the weight called `name` (ours) may be absent."""
        return name.startswith(tuple(OPTIONAL[part] for part in self.allow_missing))

    def ignores(self, name: str) -> bool:
        """Return True if the weight called `name` in the source is to be skipped."""
        return name.startswith(self.ignore)


def read_variables(prefix: str, rename: Callable[[str], str | None]) -> dict[str, np.ndarray]:
    """Read the variables of a TensorFlow checkpoint under the names that `rename` returns.

    A variable for which `rename` returns None is skipped. Half-precision variables become float32.

    Raises:
      InputError: the checkpoint cannot be read.
    """
    with readable(prefix) as file:
        try:
            reader = tf.train.load_checkpoint(file)
            names = {name: rename(name) for name in reader.get_variable_to_shape_map()}
            return {new: _to_float32(reader.get_tensor(name)) for name, new in names.items() if new}
        except DAMAGE as error:
            raise InputError(
                f"{prefix!r} is not a readable checkpoint: {str(error)[:200]}"
            ) from None


def _to_float32(value: Any) -> Any:
    """Return half-precision weights, as in included models, as float32, and others unchanged."""
    return value.astype(np.float32) if getattr(value, "dtype", None) == np.float16 else value


def weight_shapes(
    config: AlbertConfig, task: TaskSettings | None = None
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight by attribute path.

    The weights are those of `AlbertPretrainer(config)` or, given the `task` section of a fine-tuned
    run, those of its task model.
    """
    heads = _pretraining_head_shapes(config) if task is None else head_shapes(config, task)
    return _encoder_shapes(config) | heads


def head_shapes(config: AlbertConfig, task: TaskSettings) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights of a task's head by attribute path."""
    return KINDS[task.kind].head_shapes(config.hidden_size, task)


def _pretraining_head_shapes(config: AlbertConfig) -> dict[str, tuple[int, ...]]:
    e, h, v = config.embedding_size, config.hidden_size, config.vocab_size
    shapes = _dense("mlm_head/transform", h, e) | _norm("mlm_head/layer_norm", e)
    return shapes | {"mlm_head/bias": (v,)} | _dense("pair_head/dense", h, 2)


def _encoder_shapes(config: AlbertConfig) -> dict[str, tuple[int, ...]]:
    e, h, f = config.embedding_size, config.hidden_size, config.inner_size
    first = f if config.ffn == "plain" else 2 * f  # includes the gate
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
    config: AlbertConfig, weights: Weights, task: TaskSettings | None = None
) -> dict[str, np.ndarray]:
    """Return `weights` with initial values, as before training, for absent weights.

    Kernels are truncated normal with standard deviation `initializer_range`. Their seeds derive
    from their names, so every call returns the same values.
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
