"""The stack of layers whose blocks share weights (paper section 3.1, Table 4)."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig, sharing_plan
from albert_tf.models.kernels.interface import PLAIN, Hidden, Kernels, Norm
from albert_tf.models.layers import common
from albert_tf.models.layers.attention import SelfAttention
from albert_tf.models.layers.configured import ConfigMixin
from albert_tf.models.layers.encoder_block import EncoderBlock
from albert_tf.models.layers.feed_forward import FeedForward

# (x [B, S, H], mask, Q) -> [B, Q, H], the outputs of the first Q positions, or of all if None
InferenceLayer = Callable[[tf.Tensor, tf.Tensor, tf.Tensor | None], tf.Tensor]


@tf_keras.saving.register_keras_serializable("albert_tf")
class SharedStack(ConfigMixin, tf_keras.layers.Layer):
    """The `num_layers` layers of `sharing_plan(config)`, which may share weights.

    The stack owns each distinct sub-layer once; with `sharing="all"` and one group, it is one block
    called `num_layers` times. Dropout differs between layers because the layer's number is folded
    into the key.

    Inputs: x [B, S, H]; mask [B, 1, 1, S]; `num_layers` to stop before the last layer.
    Output: a list of tensors [B, S, H], one per layer, each normalized by the last LayerNorm if
    `config.norm` is pre. With `first_only`, outside training, the last tensor may be [B, 1, H].

    In training with `config.rematerialize`, the gradient of any output but the last is an error.

    If `unroll` (as in `tf_keras.layers.RNN`) is false, the output is only that of the last layer,
    of all positions, so that the layers can be a loop.
    """

    def __init__(
        self, config: AlbertConfig, unroll: bool = True, name: str = "stack", **kwargs: Any
    ) -> None:
        super().__init__(config, name=name, **kwargs)
        self.unroll, dtype = unroll, self.dtype_policy
        self.plan = sharing_plan(config)
        attentions = 1 + max(layer.attention for layer in self.plan)
        feed_forwards = 1 + max(layer.ffn for layer in self.plan)
        self.attentions = [
            SelfAttention(config, f"attention_{i}", dtype=dtype) for i in range(attentions)
        ]
        self.feed_forwards = [
            FeedForward(config, f"feed_forward_{i}", dtype=dtype) for i in range(feed_forwards)
        ]
        distinct = list(dict.fromkeys(self.plan))
        self.blocks = [
            EncoderBlock(
                config, self.attentions[a], self.feed_forwards[f], f"block_{a}_{f}", dtype=dtype
            )
            for a, f in distinct
        ]
        self.block_of_layer = [distinct.index(layer) for layer in self.plan]
        self.output_layer_norm = (
            common.layer_norm(config.layer_norm_eps, "output_layer_norm")
            if config.norm == "pre"
            else None
        )

    def build(self, input_shape: object) -> None:
        """Create the variables."""
        layers = (*self.attentions, *self.feed_forwards, *self.blocks)
        last = () if self.output_layer_norm is None else (self.output_layer_norm,)
        common.build((*layers, *last), self.config.hidden_size)
        super().build(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return super().get_config() | {"unroll": self.unroll}

    def call(
        self,
        x: tf.Tensor,
        mask: tf.Tensor,
        dropout_key: common.DropoutKey | None = None,
        training: bool = False,
        num_layers: int | None = None,
        first_only: bool = False,
    ) -> list[tf.Tensor]:
        """Apply the layers; see the class for shapes and arguments."""
        dropout_key = common.dropout_key_of(self.config, dropout_key, training)
        return self.run(PLAIN, x, mask, dropout_key, training, num_layers, first_only)

    def run(
        self,
        ops: Kernels,
        x: tf.Tensor,
        mask: tf.Tensor,
        dropout_key: common.DropoutKey | None = None,
        training: bool = False,
        num_layers: int | None = None,
        first_only: bool = False,
    ) -> list[tf.Tensor]:
        """Apply the layers with the operations of a set of kernels."""
        dropout_key, shape = dropout_key if training else None, common.shape_of(x)[:2]
        first_only = first_only and self.unroll and not training
        recomputes = training and self.config.rematerialize
        chunks = self.config.rematerialize_chunks if recomputes else None
        plan = self.plan[:num_layers]
        # Read each weight once, even if several layers use it.
        attention = [layer.weight_tensors(ops) for layer in self.attentions]
        feed_forward = [layer.weight_tensors() for layer in self.feed_forwards]
        outputs: list[Hidden] = []
        hidden, end = ops.enter(x), 0
        for (a, f), run in itertools.groupby(plan):
            numbers = range(end, end + len(list(run)))
            end = numbers.stop
            block = self.blocks[self.block_of_layer[numbers.start]]
            layer = functools.partial(_layer, ops, block, len(plan) - 1 if first_only else None)
            weights = attention[a], feed_forward[f]
            # The weights come back for the next run of the block, which adds to their gradient.
            shown, hidden, (attention[a], feed_forward[f]) = ops.repeat(
                layer, weights, hidden, mask, dropout_key, numbers, training, chunks
            )
            outputs += shown
        outputs[-1] = hidden
        if self.output_layer_norm is not None:
            outputs = [ops.add_norm(output, None, self._last_norm()) for output in outputs]
        shapes = [shape] * (len(outputs) - 1) + [[shape[0], 1] if first_only else shape]
        tensors = list(map(ops.leave, outputs, shapes))
        return tensors if self.unroll else tensors[-1:]

    def normalized(self, x: tf.Tensor) -> tf.Tensor:
        """Apply the last LayerNorm of pre-norm to an output [B, S, H]; for post-norm, return x."""
        return x if self.output_layer_norm is None else PLAIN.add_norm(x, None, self._last_norm())

    def _last_norm(self) -> Norm:
        layer: Any = self.output_layer_norm
        gamma, beta = map(tf.convert_to_tensor, (layer.gamma, layer.beta))
        return Norm(gamma, beta, self.config.layer_norm_eps)

    def inference_layers(self) -> list[InferenceLayer]:
        """Return each distinct layer, for inference."""
        weights = [
            (block.attention.weight_tensors(PLAIN), block.feed_forward.weight_tensors())
            for block in self.blocks
        ]
        return [functools.partial(b.infer, *w) for b, w in zip(self.blocks, weights, strict=True)]


def _layer(
    ops: Kernels,
    block: EncoderBlock,
    cut: int | None,
    weights: Any,
    x: Hidden,
    mask: tf.Tensor,
    dropout_key: common.DropoutKey | None,
    number: int | tf.Tensor,
) -> Hidden:
    """Apply layer `number` of the stack; of the layer `cut`, compute only the first position."""
    num_queries = None if cut is None or number != cut else 1
    attention, feed_forward = weights
    layer_key = common.fold_in(dropout_key, number)
    return block.compute(ops, attention, feed_forward, x, mask, layer_key, num_queries)
