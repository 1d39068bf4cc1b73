"""Layers whose weights are constants of the graph, for exports that compute in bfloat16."""

import itertools
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf

from albert_tf.models.encoder import AlbertEncoder
from albert_tf.models.kernels.interface import PLAIN, Kernels, Norm
from albert_tf.models.layers.encoder_block import EncoderBlock
from albert_tf.models.layers.shared_stack import InferenceLayer, SharedStack

# In memory, constants take four to five times their size for each signature in use.
LARGEST = 64 * 2**20


class ConstantStack:
    """What `SharedStack` computes in inference, as a loop over layers with constant weights.

    A module that is saved with it holds the block's weights in its graph only, in the compute
    dtype, once for all signatures. TensorFlow packs them for the CPU once, not in every request
    (docs/findings.md, "How fast does it serve?").
    """

    def __init__(self, stack: SharedStack) -> None:
        self._layers = [_constant_layer(block, stack.compute_dtype) for block in stack.blocks]
        self._numbers = stack.block_of_layer
        self._norm: Norm | None = None
        if (norm := stack.output_layer_norm) is not None:
            self._norm = Norm(norm.gamma.numpy(), norm.beta.numpy(), norm.epsilon)

    def run(
        self,
        ops: Kernels,
        x: tf.Tensor,
        mask: tf.Tensor,
        dropout_key: None = None,
        training: bool = False,
        num_layers: int | None = None,
        first_only: bool = False,
    ) -> list[tf.Tensor]:
        """Return the output of the last layer, in a list; `SharedStack` has the arguments.

        Outside training, all operations are plain.
        """
        assert not training
        x = run_in_loops(self._layers, self._numbers[:num_layers], x, mask, first_only)
        return [self.normalized(x)]

    def inference_layers(self) -> list[InferenceLayer]:
        """Return each distinct layer."""
        return self._layers

    def normalized(self, x: tf.Tensor) -> tf.Tensor:
        """Apply the last LayerNorm of pre-norm to an output [B, S, H]; for post-norm, return x."""
        return x if self._norm is None else PLAIN.add_norm(x, None, self._norm)


def use_constants(encoder: AlbertEncoder, largest: int = LARGEST) -> None:
    """Replace the layers of an encoder in place by constants.

    Do nothing if it does not compute in bfloat16, or if its layers have more than `largest` bytes
    in bfloat16. In float32, variables are faster.
    """
    stack = encoder.stack
    weights = sum(variable.shape.num_elements() for variable in stack.variables)
    if stack.compute_dtype == "bfloat16" and 2 * weights <= largest:
        encoder.stack = cast(SharedStack, ConstantStack(stack))  # with its methods for inference


def _constant_layer(block: EncoderBlock, dtype: str) -> InferenceLayer:
    """Return `block` as a `tf.function` that holds its weights as constants."""

    def stored(part: Any) -> Any:
        """Return the weights of products in `dtype`, and others, as of LayerNorms, as they are."""
        values, ends = part._asdict(), ("projections", "kernel", "bias")
        affine = {name: value for name, value in values.items() if name.endswith(ends)}
        lowered = tf.nest.map_structure(lambda value: tf.cast(value, dtype), affine)
        return tf.nest.map_structure(np.asarray, part._replace(**lowered))

    weights = (
        stored(block.attention.weight_tensors(PLAIN)),
        stored(block.feed_forward.weight_tensors()),
    )
    hidden = tf.TensorSpec([None, None, block.config.hidden_size], dtype)
    mask = tf.TensorSpec([None, 1, 1, None], tf.float32)
    num_queries = tf.TensorSpec([], tf.int32)

    @tf.function(input_signature=[hidden, mask, num_queries], autograph=False)
    def layer(x: tf.Tensor, mask: tf.Tensor, num_queries: tf.Tensor) -> tf.Tensor:
        attention, ffn = tf.nest.map_structure(tf.constant, weights)
        return block.infer(attention, ffn, x, mask, num_queries)

    return lambda x, mask, num_queries: layer(
        x, mask, tf.shape(x)[1] if num_queries is None else num_queries
    )


def run_in_loops(
    layers: Sequence[InferenceLayer],
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
            done: tf.Tensor,
            x: tf.Tensor,
            layer: InferenceLayer = layers[number],
            is_cut: bool = is_cut,
        ) -> tuple[tf.Tensor, tf.Tensor]:
            num_queries = tf.where(done < len(numbers) - 1, length, 1) if is_cut else None
            return done + 1, layer(x, mask, num_queries)

        shape = tf.TensorShape([x.shape[0], None, x.shape[2]]) if is_cut else x.shape
        shapes = tf.TensorShape([]), shape
        _, x = tf.while_loop(lambda done, _, end=end: done < end, step, (begin, x), shapes)
        begin = end
    return x
