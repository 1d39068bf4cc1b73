"""Layers whose weights are constants of the graph, for exports that compute in bfloat16."""

from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.models.layers import common
from albert_tf.models.layers.attention import JoinedWeights
from albert_tf.models.layers.encoder_block import EncoderBlock
from albert_tf.models.layers.feed_forward import FeedForwardWeights
from albert_tf.models.layers.shared_stack import Layer, SharedStack, run_in_loops

Model = TypeVar("Model", bound=tf_keras.Model)


class ConstantStack:
    """What `SharedStack` computes in inference, as a loop over layers with constant weights.

    oneDNN packs the constant kernel of a product once and keeps it. A variable's would be read as
    float32, converted and packed for every request. Each place of the graph keeps a copy of its
    own, so the layers are a loop, and all signatures call the same functions. In float32, the
    packed form depends on the number of rows, and a form that does not fit is made anew in every
    product; there, variables are faster.

    The stack is called as a `SharedStack` whose `unroll` is false, and is not tracked: a module
    that is saved with it holds the block's weights in the graph only, in the compute dtype.
    """

    def __init__(self, stack: SharedStack) -> None:
        self.block_of_layer = stack.block_of_layer
        self._layers = [_constant_layer(block, stack.compute_dtype) for block in stack.blocks]
        self._norm: tuple | None = None
        if (norm := stack.output_layer_norm) is not None:
            self._norm = norm.gamma.numpy(), norm.beta.numpy(), norm.epsilon

    def __call__(
        self,
        x: tf.Tensor,
        mask: tf.Tensor,
        key: common.DropoutKey | None = None,
        training: bool = False,
        num_layers: int | None = None,
        packing: None = None,
    ) -> list[tf.Tensor]:
        """Return the output of the last layer, in a list."""
        assert not training and packing is None
        return [self.normalized(run_in_loops(self, x, mask, num_layers), training)]

    def inference_layers(self) -> list[Layer]:
        """Return each distinct layer as a function (x, mask) -> x."""
        return self._layers

    def normalized(self, x: tf.Tensor, training: bool) -> tf.Tensor:
        """Apply the last LayerNorm of pre-norm to an output [B, S, H]; for post-norm, return x."""
        return x if self._norm is None else common.add_dropout_norm(x, None, self._norm, 0.0, None)


def with_constants(model: Model) -> Model:
    """Return an encoder or a model with one, its layers constants if it computes in bfloat16."""
    encoder = getattr(model, "encoder", model)
    if encoder.compute_dtype == "bfloat16":
        encoder.stack = ConstantStack(encoder.stack)
    return model


def _constant_layer(block: EncoderBlock, dtype: str) -> Any:
    """Return `block` as a `tf.function` (x, mask) -> x that holds its weights as constants."""

    def values(part: NamedTuple) -> list[np.ndarray]:
        """Return the kernels and biases in `dtype`, and the scale and shift of a LayerNorm."""
        *affine, gamma, beta = part
        return [*(tf.cast(each, dtype).numpy() for each in affine), gamma.numpy(), beta.numpy()]

    attention = values(block.attention.joined(block.attention.weight_tensors()))
    feed_forward = values(block.feed_forward.weight_tensors())
    hidden = tf.TensorSpec([None, None, block.config.hidden_size], dtype)
    mask = tf.TensorSpec([None, 1, 1, None], tf.float32)

    @tf.function(input_signature=[hidden, mask], autograph=False)
    def layer(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        first = JoinedWeights(*map(tf.constant, attention))
        second = FeedForwardWeights(*map(tf.constant, feed_forward))
        return block.compute(first, second, x, mask, None, False)

    return layer
