"""Bundle: the configuration, named weights, tokenizer and task of a trained model."""

import dataclasses
import functools
import zlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.models.checkpoints import DAMAGE, readable
from albert_tf.models.config import AlbertConfig
from albert_tf.models.encoder import AlbertEncoder
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.task_settings import TaskSettings
from albert_tf.text.tokenizer import Tokenizer

# Arrays by attribute path, such as "encoder/stack/attentions/0/query/kernel", in an
# AlbertPretrainer or a task model. In a task model, the head's paths start with HEAD.
Weights = Mapping[str, np.ndarray]
Shape: TypeAlias = tuple[int, ...]
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


def weight_shapes(config: AlbertConfig, task: TaskSettings | None = None) -> Mapping[str, Shape]:
    """Return the shape of every weight by attribute path.

    The weights are those of `AlbertPretrainer(config)` or, given the `task` section of a fine-tuned
    run, those of its task model. They are read off the model.
    """
    return dict(_weight_shapes(config, task))


@functools.lru_cache(64)
def _weight_shapes(config: AlbertConfig, task: TaskSettings | None) -> Mapping[str, Shape]:
    with tf.Graph().as_default():  # variables without values
        if task is None:
            return shapes_of(AlbertPretrainer(config).create_weights())
        return shapes_of(KINDS[task.kind].model(AlbertEncoder(config), task).create_weights())


def shapes_of(model: tf_keras.Model) -> dict[str, Shape]:
    """Return the shapes of a model's weights by attribute path, each weight under its first."""
    shapes: dict[str, Shape] = {}
    seen: set[int] = set()

    def visit(node: Any, path: tuple[str, ...]) -> None:
        for name, child in tf.train.TrackableView.children(node).items():
            is_attribute = name.isdigit() or getattr(node, name, None) is child
            if id(child) in seen or not is_attribute:  # a variable is also tracked by its own name
                continue
            seen.add(id(child))
            if isinstance(child, tf.Variable):
                shapes["/".join((*path, name))] = tuple(child.shape)
            else:
                visit(child, (*path, name))

    visit(model, ())
    return shapes


def head_shapes(config: AlbertConfig, task: TaskSettings) -> dict[str, Shape]:
    """Return the shapes of the weights of a task's head by attribute path."""
    return {n: s for n, s in weight_shapes(config, task).items() if n.startswith(HEAD)}


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
