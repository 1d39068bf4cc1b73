"""The stack of layers whose blocks share weights (paper section 3.1, Table 4)."""

import functools
import itertools
from collections.abc import Callable, Sequence
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
Layer = Callable[[tf.Tensor, tf.Tensor, tf.Tensor | None], tf.Tensor]


@tf_keras.saving.register_keras_serializable("albert_tf")
class SharedStack(ConfigMixin, tf_keras.layers.Layer):
    """The `num_layers` layers of `sharing_plan(config)`, which may share weights.

    The stack owns each distinct sub-layer once; with `sharing="all"` and one group, it is one block
    called `num_layers` times. Dropout differs between layers because the layer's number is folded
    into the key.

    Inputs: x [B, S, H]; mask [B, 1, 1, S]; `num_layers` to stop before the last layer.
    Output: a list of tensors [B, S, H], one per layer, each normalized by the last LayerNorm if
    `config.norm` is pre. With `first_only`, outside training, the last tensor may be [B, 1, H].

    In training with `config.rematerialize`, all layers run, and the gradient of any but the last is
    an error.

    If `unroll` (as in `tf_keras.layers.RNN`) is false, the output is only that of the last layer,
    and outside training, consecutive layers with the same weights are a loop in the graph. This is
    for LiteRT, whose kernels copy the weights into their own layout once per product in the graph.
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
        key: common.DropoutKey | None = None,
        training: bool = False,
        num_layers: int | None = None,
        first_only: bool = False,
    ) -> list[tf.Tensor]:
        """Apply the layers; see the class for shapes and arguments."""
        return self.run(PLAIN, x, mask, key, training, num_layers, first_only)

    def run(
        self,
        ops: Kernels,
        x: tf.Tensor,
        mask: tf.Tensor,
        key: common.DropoutKey | None = None,
        training: bool = False,
        num_layers: int | None = None,
        first_only: bool = False,
    ) -> list[tf.Tensor]:
        """Apply the layers with the operations of a set of kernels."""
        key, first_only = key if training else None, first_only and not training
        if not (self.unroll or training):  # all positions: shapes that LiteRT knows
            blocks = self.block_of_layer[:num_layers]
            x = run_in_loops(self.inference_layers(), blocks, x, mask)
            return [self.normalized(x)]
        repeat: Callable = functools.partial(ops.repeat, training=training)
        if training and self.config.rematerialize:
            num_layers = None
            repeat = functools.partial(ops.recompute, chunks=self.config.rematerialize_chunks)
        # Read each weight once, even if several layers use it.
        attention = [layer.weight_tensors() for layer in self.attentions]
        feed_forward = [layer.weight_tensors() for layer in self.feed_forwards]
        plan, shape = self.plan[:num_layers], common.shape_of(x)[:2]
        outputs: list[Hidden] = []
        hidden = ops.enter(x)
        for (a, f), run in itertools.groupby(plan):
            block = self.blocks[self.block_of_layer[len(outputs)]]
            numbers = range(len(outputs), len(outputs) + len(list(run)))
            cut = len(plan) - 1 if first_only else None
            layer = functools.partial(_layer, ops, block, cut)
            weights = attention[a], feed_forward[f]
            shown, hidden, weights = repeat(layer, weights, hidden, mask, key, numbers)
            attention[a], feed_forward[f] = weights
            outputs += shown
        outputs[-1] = hidden
        if self.output_layer_norm is not None:
            outputs = [ops.add_norm(output, None, self._last_norm()) for output in outputs]
        shapes = [shape] * (len(plan) - 1) + [[shape[0], 1] if first_only else shape]
        tensors = list(map(ops.leave, outputs, shapes))
        return tensors if self.unroll else tensors[-1:]

    def normalized(self, x: tf.Tensor) -> tf.Tensor:
        """Apply the last LayerNorm of pre-norm to an output [B, S, H]; for post-norm, return x."""
        return x if self.output_layer_norm is None else PLAIN.add_norm(x, None, self._last_norm())

    def _last_norm(self) -> Norm:
        layer: Any = self.output_layer_norm
        gamma, beta = map(tf.convert_to_tensor, (layer.gamma, layer.beta))
        return Norm(gamma, beta, self.config.layer_norm_eps)

    def inference_layers(self) -> list[Layer]:
        """Return each distinct layer, for inference."""

        def layer(block: EncoderBlock) -> Layer:
            attention = block.attention.joined(block.attention.weight_tensors())
            return functools.partial(block.infer, attention, block.feed_forward.weight_tensors())

        return [layer(block) for block in self.blocks]


def _layer(
    ops: Kernels,
    block: EncoderBlock,
    cut: int | None,
    weights: Any,
    x: Hidden,
    mask: tf.Tensor,
    key: common.DropoutKey | None,
    number: int | tf.Tensor,
) -> Hidden:
    """Apply layer `number` of the stack; of the layer `cut`, compute only the first position."""
    num_queries = None if cut is None or number != cut else 1
    attention, feed_forward = weights
    layer_key = common.fold_in(key, number)
    return block.compute(ops, attention, feed_forward, x, mask, layer_key, num_queries)


def run_in_loops(
    layers: Sequence[Layer],
    numbers: Sequence[int],
    x: tf.Tensor,
    mask: tf.Tensor,
    first_only: bool = False,
) -> tf.Tensor:
    """Return the output of the last layer, with a loop for each run of equal layers.

    Layer i of the stack is `layers[numbers[i]]`. With `first_only`, return the output of the first
    position. The last layer then stays in its loop, where constants are packed once, but the loop's
    shape changes, which `jit_compile` cannot take.
    """
    length, begin = tf.shape(x)[1], 0
    for number, run in itertools.groupby(numbers):
        end = begin + len(list(run))
        is_cut = first_only and end == len(numbers)

        def step(
            done: tf.Tensor, x: tf.Tensor, layer: Layer = layers[number], is_cut: bool = is_cut
        ) -> tuple[tf.Tensor, tf.Tensor]:
            num_queries = tf.where(done < len(numbers) - 1, length, 1) if is_cut else None
            return done + 1, layer(x, mask, num_queries)

        shape = tf.TensorShape([x.shape[0], None, x.shape[2]]) if is_cut else x.shape
        shapes = tf.TensorShape([]), shape
        _, x = tf.while_loop(lambda done, _, end=end: done < end, step, (begin, x), shapes)
        begin = end
    return x
