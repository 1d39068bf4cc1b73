"""The stack of layers whose blocks share weights (paper section 3.1, Table 4)."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig, sharing_plan
from albert_tf.models.layers import common, rematerialize, target, tpu
from albert_tf.models.layers.attention import AttentionWeights, SelfAttention
from albert_tf.models.layers.configured import ConfigMixin
from albert_tf.models.layers.encoder_block import EncoderBlock
from albert_tf.models.layers.feed_forward import FeedForward, FeedForwardWeights
from albert_tf.models.layers.packing import Packing

# (x [B, S, H], mask, Q) -> [B, Q, H], the outputs of the first Q positions, or of all if None
Layer = Callable[[tf.Tensor, tf.Tensor, tf.Tensor | None], tf.Tensor]
Weights = TypeVar("Weights", AttentionWeights, FeedForwardWeights)


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
    an error. With a `packing`, in training without dropout of hidden states, padded positions are
    not computed, and no loss may depend on them.

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
        packing: Packing | None = None,
        first_only: bool = False,
    ) -> list[tf.Tensor]:
        """Apply the layers; see the class for shapes and arguments."""
        first_only = first_only and not training
        if not (self.unroll or training):  # all positions: shapes that LiteRT knows
            numbers = self.block_of_layer[:num_layers]
            x = run_in_loops(self.inference_layers(), numbers, x, mask)
            return [self.normalized(x, training)]
        # Read each weight once, even if several layers use it.
        attention = [layer.weight_tensors() for layer in self.attentions]
        feed_forward = [layer.weight_tensors() for layer in self.feed_forwards]
        if training and self.config.rematerialize:
            outputs = self._rematerialized(attention, feed_forward, x, mask, key)
            return outputs if self.unroll else outputs[-1:]
        outputs, shape = [], common.shape_of(x)
        if packing is not None:
            x = packing.pack(tf.reshape(x, [-1, shape[2]]))
        plan = self.plan[:num_layers]
        for number, (a, f) in enumerate(plan):
            layer_key = common.fold_in(key, number)
            block = self.blocks[self.block_of_layer[number]]
            weights = attention[a], feed_forward[f]
            num_queries = 1 if first_only and number == len(plan) - 1 else None
            x = block.compute(*weights, x, mask, layer_key, training, packing, num_queries)
            output = self.normalized(tpu.twins(x).residual, training)
            if packing is not None:
                output = tf.reshape(packing.unpack(output), shape)
            outputs.append(output)
            if training:
                attention[a], feed_forward[f] = (
                    _chain_gradients(attention[a]),
                    _chain_gradients(feed_forward[f]),
                )
        return outputs if self.unroll else outputs[-1:]

    def normalized(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        """Apply the last LayerNorm of pre-norm to an output [B, S, H]; for post-norm, return x."""
        if self.output_layer_norm is None:
            return x
        shape = common.shape_of(x)
        gamma, beta = map(
            tf.convert_to_tensor, (self.output_layer_norm.gamma, self.output_layer_norm.beta)
        )
        flat = common.flat(x, shape[-1], training)
        norm = gamma, beta, self.config.layer_norm_eps
        normal = common.add_dropout_norm(flat, None, norm, 0.0, None, training)
        return tf.reshape(tpu.twins(normal).operand, shape)

    def inference_layers(self) -> list[Layer]:
        """Return each distinct layer, for inference."""

        def layer(block: EncoderBlock) -> Layer:
            attention = block.attention.joined(block.attention.weight_tensors())
            feed_forward = block.feed_forward.weight_tensors()
            return lambda x, mask, num_queries: block.compute(
                attention, feed_forward, x, mask, None, False, num_queries=num_queries
            )

        return [layer(block) for block in self.blocks]

    def _rematerialized(
        self,
        attention: list[AttentionWeights],
        feed_forward: list[FeedForwardWeights],
        x: tf.Tensor,
        mask: tf.Tensor,
        key: common.DropoutKey | None,
    ) -> list[tf.Tensor]:
        """Return all layers' outputs, with a rematerialized loop for each run of equal layers."""
        outputs: list[tf.Tensor] = []
        for (a, f), layers in itertools.groupby(self.plan):
            block, count = self.blocks[self.block_of_layer[len(outputs)]], len(list(layers))

            def layer(
                weights: Sequence[tf.Tensor],
                x: tf.Tensor,
                mask: tf.Tensor,
                key: tf.Tensor | None,
                number: tf.Tensor,
                block: EncoderBlock = block,
                first: int = len(outputs),
            ) -> tf.Tensor:
                split = len(AttentionWeights._fields)
                own = AttentionWeights(*weights[:split])
                other = FeedForwardWeights(*weights[split:])
                layer_key = common.fold_in(key, first + number)
                out = block.compute(own, other, x, mask, layer_key, training=True)
                return tpu.twins(out).residual

            weights = [*attention[a], *feed_forward[f]]
            attention[a], feed_forward[f] = (
                _chain_gradients(attention[a]),
                _chain_gradients(feed_forward[f]),
            )
            chunks = self.config.rematerialize_chunks
            outputs += rematerialize.run_layers(layer, weights, x, mask, key, count, chunks)
            x = outputs[-1]
        outputs = [*map(rematerialize.without_gradient, outputs[:-1]), x]
        return [self.normalized(output, training=True) for output in outputs]


def run_in_loops(
    layers: Sequence[Layer],
    numbers: Sequence[int],
    x: tf.Tensor,
    mask: tf.Tensor,
    first_only: bool = False,
) -> tf.Tensor:
    """Return the output of the last layer, with a loop for each run of equal layers.

    Layer i of the stack is `layers[numbers[i]]`. With `first_only`, return the output of the first
    position. The last layer then stays in its loop, where constants are packed once, but XLA cannot
    compile the loop, whose shape changes.
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


def _chain_gradients(weights: Weights) -> Weights:
    """Return the same weights for the next layer, so that gradients are added in pairs.

    The sums start at the last layer. TensorFlow's sum of many gradients waits for all of them, and
    the order of its additions depends on timing.
    """
    return type(weights)(*map(tpu.chained if target.is_tpu() else tf.identity, weights))
