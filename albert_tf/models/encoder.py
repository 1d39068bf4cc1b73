"""AlbertEncoder: token ids in, hidden states out."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import tensorflow as tf
import tf_keras

from albert_tf.models.checkpoints import (
    is_saved_model,
    load_config,
    load_exported_config,
    read_checkpoint,
    read_exported,
)
from albert_tf.models.config import AlbertConfig
from albert_tf.models.configured_model import ConfiguredModel, Outputs
from albert_tf.models.kernels.interface import Kernels
from albert_tf.models.layers import common
from albert_tf.models.layers.attention import additive_mask
from albert_tf.models.layers.embeddings import AlbertEmbeddings
from albert_tf.models.layers.shared_stack import SharedStack
from albert_tf.runtime import pretrained
from albert_tf.runtime.forks import require_unforked

INPUTS = ("input_word_ids", "input_mask", "input_type_ids")
_ZEROS = 4  # positions of an input that only creates weights


@tf_keras.saving.register_keras_serializable("albert_tf")
class AlbertEncoder(ConfiguredModel):
    """The encoder of ALBERT (arXiv 1909.11942), or of BERT if no layers share weights and E == H.

    >>> encoder = albert_tf.AlbertEncoder.from_preset("albert-mini-en")
    >>> tokenizer = albert_tf.load_tokenizer("albert-mini-en")
    >>> ids = tf.constant([[2, *tokenizer.encode("Ships sail."), 3]])  # [CLS] and [SEP]
    >>> inputs = {"input_word_ids": ids, "input_mask": ids * 0 + 1, "input_type_ids": ids * 0}
    >>> encoder(inputs)["sequence_output"].shape
    TensorShape([1, 5, 384])

    Inputs: a dict of int32 [B, S]: `input_word_ids`, `input_mask` (1 = real piece, 0 = padding),
    `input_type_ids` (0 = first segment, 1 = second); S is at most `config.max_positions`.

    Outputs, named as in TF Hub's text encoders:
      sequence_output: float32 [B, S, H], the last layer.
      pooled_output: float32 [B, H], tanh(dense(first position)).
      encoder_outputs: a list of `num_layers` tensors [B, S, H], one per layer, in the compute
        dtype; in training with `config.rematerialize`, a loss may depend only on the last one.

    Raises:
      ValueError: shapes differ, a sequence is too long, or ids lie outside their table.

    With `num_layers`, only that many layers are computed, and the output of the last of them is
    pooled. If all layers share one block, the same weights can run at any depth.

    With `pooled_only`, `pooled_output` is the only output. Outside training, unless `unroll` is
    false, most of the last layer is then computed for the first position only.

    Dropout is applied if `training` is true, keyed by `dropout_key` (int32 [2]); without a key,
    each call draws one.

    Set `skip_padding` only if no loss depends on padded positions, nor on the pooled output of a
    row that begins with one. Training without `hidden_dropout` or `rematerialize` may then skip
    padded positions (`Kernels.skipping_padding`).

    `kernels` is `auto`, or `plain` for TensorFlow's own operations on every device (`choose`).
    """

    def __init__(self, config: AlbertConfig, unroll: bool = True, **kwargs: Any) -> None:
        super().__init__(config, unroll, **kwargs)
        self.embeddings = AlbertEmbeddings(config, dtype=self.dtype_policy)
        self.stack = SharedStack(config, unroll, dtype=self.dtype_policy)
        self.pooler = common.dense(config, config.hidden_size, "pooler")

    @classmethod
    def load(cls, path: str, **kwargs: Any) -> Self:
        """Load a trained encoder: see `load_encoder`."""
        path = pretrained.locate(path)
        if is_saved_model(path):
            encoder = cls(load_exported_config(path), **kwargs).create_weights()
            read_exported(encoder, path)
            return encoder
        encoder = cls(load_config(path), **kwargs).create_weights()
        read_checkpoint(tf.train.Checkpoint(model=tf.train.Checkpoint(encoder=encoder)), path)
        return encoder

    def as_run(self) -> tuple[tf.train.Checkpoint, dict[str, Any]]:
        """Return what a run folder holds that has no pretraining heads."""
        weights, sections = super().as_run()
        return tf.train.Checkpoint(encoder=weights), sections

    def layers_in_order(self) -> tuple[tf_keras.layers.Layer, ...]:
        """Return embeddings, stack and pooler."""
        return self.embeddings, self.stack, self.pooler

    def run(  # type: ignore[override]  # its own options
        self,
        ops: Kernels,
        inputs: Mapping[str, tf.Tensor],
        training: bool,
        dropout_key: common.DropoutKey | None,
        num_layers: int | None = None,
        skip_padding: bool = False,
        pooled_only: bool = False,
    ) -> Outputs:
        """Run the encoder with a set of operations; see the class for the other arguments."""
        config = self.config
        inputs = _with_checked_shapes(as_int32(inputs, INPUTS), config)
        _check_values(inputs, config)
        if num_layers is not None and not 1 <= num_layers <= config.num_layers:
            raise ValueError(
                f"`num_layers` must be from 1 to {config.num_layers}. Received: {num_layers}."
            )
        dropout_key = common.dropout_key_of(config, dropout_key, training)
        embeddings_key, stack_key = (common.fold_in(dropout_key, number) for number in range(2))
        x = self.embeddings.run(ops, inputs, embeddings_key, training)  # [B, S, H]
        mask = additive_mask(inputs["input_mask"])
        if skip_padding and training and not (config.hidden_dropout or config.rematerialize):
            ops = ops.skipping_padding(inputs["input_mask"])
        outputs = self.stack.run(ops, x, mask, stack_key, training, num_layers, pooled_only)
        pooled = {"pooled_output": self.pool(outputs[-1])}
        if pooled_only:
            return pooled
        sequence = tf.cast(outputs[-1], tf.float32)
        return pooled | {"sequence_output": sequence, "encoder_outputs": outputs}

    def pool(self, hidden: tf.Tensor) -> tf.Tensor:
        """Return tanh(dense(first position)) of a layer's output [B, S, H]: float32 [B, H]."""
        return tf.tanh(self.pooler(tf.cast(hidden[:, 0], tf.float32)))

    def create_weights(self) -> Self:
        """Create every weight by one symbolic call; return self."""
        call_symbolically(self, INPUTS)
        return self


def call_symbolically(model: tf_keras.Model, names: Iterable[str], *shape: int) -> None:
    """Call `model` on symbolic int32 [B, *shape, S] of unknown B and S to create its weights.

    The call leaves no node, so that `model.output` is the output of the user's own call. In a graph
    that the caller has made, the inputs are zeros, and the variables are the graph's: they have no
    values. Do nothing if the model has been called.

    Raises:
      InputError: the process was forked after a model was loaded.
    """
    require_unforked()
    if model.save_spec() is not None:
        return
    if tf.executing_eagerly():
        model({name: tf_keras.Input([*shape, None], dtype=tf.int32, name=name) for name in names})
        model.inbound_nodes.clear()
    else:
        model({name: tf.zeros([1, *shape, _ZEROS], tf.int32) for name in names})


def load_encoder(path: str | os.PathLike[str], **kwargs: Any) -> AlbertEncoder:
    """Load the trained encoder of a run folder, a converted folder or an exported encoder.

    >>> encoder = albert_tf.load_encoder("albert-mini-en")  # called as in `AlbertEncoder`
    >>> encoder.config.hidden_size
    384

    Args:
      path: the folder, or the name of an included model.
      kwargs: arguments of `AlbertEncoder`, such as `dtype="mixed_bfloat16"`.

    Raises:
      InputNotFoundError: there is no model at `path`.
      InputError: the weights are damaged or do not match config.json.
    """
    return AlbertEncoder.load(os.fspath(path), **kwargs)


def as_int32(inputs: Mapping[str, tf.Tensor], names: Sequence[str]) -> dict[str, tf.Tensor]:
    """Return the inputs of these names as int32.

    In a graph they may be floats: with these, Keras builds a subclassed model that it loads.

    Raises:
      ValueError: `inputs` is no dict of such tensors; names what was received.
    """
    given = list(inputs) if isinstance(inputs, Mapping) else type(inputs).__name__
    if not isinstance(inputs, Mapping) or set(names) - set(inputs):
        raise ValueError(f"the inputs must be a dict with {', '.join(names)}. Received: {given}.")
    for name in names:
        value, dtype = inputs[name], getattr(inputs[name], "dtype", None)
        if isinstance(value, tf.RaggedTensor | tf.SparseTensor) or isinstance(dtype, str):
            kind = type(value)
            raise ValueError(
                f"`{name}` must be an int32 tensor. Received: {kind.__module__}.{kind.__name__}. "
                "Pad rows with `to_tensor()`, and make symbolic inputs with `tf_keras.Input`."
            )
        is_built = dtype is not None and dtype.is_floating and not tf.executing_eagerly()
        if dtype is None or not (dtype.is_integer or is_built):
            received = dtype.name if dtype else type(value).__name__
            raise ValueError(f"`{name}` must be an int32 tensor. Received: {received}.")
    return {name: tf.cast(inputs[name], tf.int32) for name in names}


def _with_checked_shapes(
    inputs: dict[str, tf.Tensor], config: AlbertConfig
) -> dict[str, tf.Tensor]:
    """Check that all shapes are [B, S] with S at most `max_positions`; return `inputs`.

    In a graph, an S that is not known yet is checked when the graph runs, before anything reads the
    returned tensors.
    """
    words = inputs["input_word_ids"].shape
    if words.rank != 2:
        raise ValueError(f"`input_word_ids` must be [B, S]. Received: shape {words}.")
    limit = config.max_positions
    if words[1] is not None and not 1 <= words[1] <= limit:
        raise ValueError(
            "sequences must not be empty or longer than `max_positions`. "
            f"Received: {words[1]} pieces, max_positions={limit}."
        )
    for name in INPUTS[1:]:
        if not inputs[name].shape.is_compatible_with(words):
            raise ValueError(
                f"`{name}` must have the shape of `input_word_ids`. "
                f"Received: {inputs[name].shape}, input_word_ids: {words}."
            )
    if words[1] is not None:
        return inputs
    length = tf.shape(inputs["input_word_ids"])[1]
    too_long = f"sequences must not be longer than `max_positions`, {limit}."
    checks = [
        tf.debugging.assert_positive(length, "sequences must have at least one piece."),
        tf.debugging.assert_less_equal(length, limit, too_long),
    ]
    with tf.control_dependencies(checks):
        return {name: tf.identity(value) for name, value in inputs.items()}


def _check_values(inputs: Mapping[str, tf.Tensor], config: AlbertConfig) -> None:
    """Check that ids lie in their tables if their values are known, as in an eager call.

    In a graph, TensorFlow's lookups reject other ids, but that of types does not in training, nor
    do compiled programs and accelerators: they return other values instead.
    """
    limits = {"input_word_ids": "vocab_size", "input_type_ids": "type_vocab_size"}
    for name, limit in limits.items():
        ids = tf.get_static_value(inputs[name])
        if ids is None or not ids.size:
            continue
        for extreme in (ids.min(), ids.max()):
            if not 0 <= extreme < getattr(config, limit):
                raise ValueError(
                    f"`{name}` must lie in [0, {limit}). "
                    f"Received: {extreme}, {limit}={getattr(config, limit)}."
                )
