"""The operations that a layer asks for, as TensorFlow has them: the interface and the reference.

Each set of kernels is a `Kernels` and overrides what its device does faster. Results and gradients
are the plain ones, up to rounding; gradients are those of the formula unless a method says more.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from albert_tf.models.kernels import rematerialize
from albert_tf.models.kernels.plain import (
    Dropout,
    cross_entropy,
    dropped,
    normalized_sum,
    positions_of,
    rotation,
)
from albert_tf.models.kernels.plain import shape_of as shape_of

# The hidden states between sub-layers, in a form that each set chooses: a layer only passes them
# on. The plain one is [B * S, H], since the gradient of a three-dimensional product would be an
# einsum, which is 1.3 to 1.7 times slower.
Hidden: TypeAlias = Any
# Queries, keys, values or contexts of all heads; the plain form is [B, N, S, D].
Heads: TypeAlias = Any
# (weights, x, mask, dropout key, number of the layer) -> x
LayerFunction: TypeAlias = Callable[[Any, Hidden, tf.Tensor, tf.Tensor | None, Any], Hidden]


class Projections(NamedTuple):
    """The weights of queries, keys and values, float32."""

    query_kernel: tf.Tensor  # [H, H]
    key_kernel: tf.Tensor  # [H, H]
    value_kernel: tf.Tensor  # [H, H]
    query_bias: tf.Tensor  # [H]
    key_bias: tf.Tensor  # [H]
    value_bias: tf.Tensor  # [H]


class Norm(NamedTuple):
    """The weights [H] and the epsilon of a LayerNorm."""

    gamma: tf.Tensor
    beta: tf.Tensor
    eps: float


class Kernels:
    """The plain operations, for any device; the base class of all sets.

    Weights are float32 and cast to the dtype of x, which is also that of the result. Softmax,
    LayerNorm and activations compute in float32. `mask` is float32 [B, 1, 1, S], added to the
    logits of attention.
    """

    def enter(self, x: tf.Tensor) -> Hidden:
        """Convert x [B, S, H], or its rows [B * S, H], to hidden states."""
        return tf.reshape(x, [-1, x.shape[-1]])

    def leave(self, x: Hidden, shape: Sequence) -> tf.Tensor:
        """Convert hidden states, or a result of `affine`, to [B, S, ..]; `shape` is [B, S]."""
        return tf.reshape(x, [*shape, x.shape[-1]])

    def affine(self, x: Hidden, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """Return x W + b of hidden states, or of an earlier result: [M, K] -> [M, units]."""
        product, bias = tf.matmul(x, tf.cast(kernel, x.dtype)), tf.cast(bias, x.dtype)
        # TensorFlow fuses `bias_add` into the product, but not `+`. On a CPU, the gradient of
        # `bias_add` sums bfloat16 numbers in bfloat16: the sum of 1,024 ones is 256.
        return tf.nn.bias_add(product, bias) if x.dtype == tf.float32 else product + bias

    def projections(self, weights: Projections, num_heads: int) -> Any:
        """Return the weights as `into_heads` takes them: for one product, with 1 / sqrt(D)."""
        scale = (weights.query_kernel.shape[1] // num_heads) ** -0.5
        kernels = [weights.query_kernel * scale, weights.key_kernel, weights.value_kernel]
        biases = [weights.query_bias * scale, weights.key_bias, weights.value_bias]
        return tf.concat(kernels, 1), tf.concat(biases, 0)

    def into_heads(
        self,
        x: Hidden,
        projections: Any,
        mask: tf.Tensor,
        num_heads: int,
        num_queries: int | tf.Tensor | None = None,
    ) -> tuple[Heads, Heads, Heads]:
        """Return queries / sqrt(D), keys and values, or only the queries of the first positions."""
        positions = positions_of(mask)
        qkv = self.leave(self.affine(x, *projections), positions)  # [B, S, 3 H]
        heads = tf.reshape(qkv, [*positions, 3, num_heads, qkv.shape[2] // (3 * num_heads)])
        query, keys, values = tf.unstack(tf.transpose(heads, [2, 0, 3, 1, 4]))  # [B, N, S, D]
        return query if num_queries is None else query[:, :, :num_queries], keys, values

    def rotate(self, x: Heads) -> Heads:
        """Apply rotary positions (arXiv 2104.09864, in halves as in GPT-NeoX).

        Elements i and i + D / 2 at position s are rotated by the angle s * 10000^(-2 i / D).
        """
        return rotation(x, 1.0)

    def attend(
        self,
        query: Heads,
        keys: Heads,
        values: Heads,
        mask: tf.Tensor,
        dropout: Dropout | None,
    ) -> Heads:
        """Return dropout(softmax(q k^T + mask)) v."""
        logits = tf.matmul(query, keys, transpose_b=True)  # [B, N, Q, S]
        attended = self.dropout(self._softmax(logits, mask), dropout)
        return tf.matmul(attended, values)

    def _softmax(self, logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Return the softmax of logits + mask over the last axis, in the dtype of the logits."""
        return tf.cast(tf.nn.softmax(tf.cast(logits, tf.float32) + mask), logits.dtype)

    def out_of_heads(self, context: Heads, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """Return W_o (the heads side by side) + b, like a result of `affine`."""
        joined = tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [-1, kernel.shape[0]])  # [.., H]
        return self.affine(self.enter(joined), kernel, bias)

    def activation(self, x: tf.Tensor, name: str, gated: bool = False) -> tf.Tensor:
        """Apply `gelu`, in the tanh form of ALBERT's training, or `relu` (the Chinese models).

        If `gated`, return activation(gate) * value of x [M, 2 F], with the gate first: [M, F].
        """
        if gated:
            gate, value = tf.split(x, 2, -1)
            return self.activation(gate, name) * value
        if name == "relu":
            return tf.nn.relu(x)
        wide = x if x.dtype.size >= 4 else tf.cast(x, tf.float32)
        return tf.cast(tf.nn.gelu(wide, approximate=True), x.dtype)

    def dropout(self, x: tf.Tensor, dropout: Dropout | None) -> tf.Tensor:
        """Return `plain.dropped`, or x itself without dropout."""
        return x if dropout is None else dropped(x, dropout)

    def add(self, x: Hidden, update: tf.Tensor, dropout: Dropout | None) -> Hidden:
        """Return x + dropout(update); `update` is a result of `affine`."""
        return x + self.dropout(update, dropout)

    def add_norm(
        self, x: Hidden, update: tf.Tensor | None, norm: Norm, dropout: Dropout | None = None
    ) -> Hidden:
        """Return LayerNorm(x + dropout(update)), or LayerNorm(x) if `update` is None."""
        normal, _ = normalized_sum(x, update, norm.eps, dropout)
        return tf.cast(normal * norm.gamma + norm.beta, x.dtype)

    def repeat(
        self,
        layer: LayerFunction,
        weights: Any,
        x: Hidden,
        mask: tf.Tensor,
        dropout_key: tf.Tensor | None,
        numbers: range,
        training: bool,
        chunks: int | None = None,
    ) -> tuple[list[Hidden], Hidden, Any]:
        """Apply `layer` once for each number, with the same weights.

        In training, gradients of weights are added in pairs, starting at the last layer.
        TensorFlow's sum of many gradients waits for all of them, and the order of its additions
        depends on timing. With `chunks`, the gradient recomputes each layer from its input.

        Returns:
          The hidden states after each layer, the last ones again as input of further layers, and
          the weights for further layers that use them.
        """
        if chunks:
            return self._recompute(layer, weights, x, mask, dropout_key, numbers, chunks)
        outputs = []
        for number in numbers:
            x = layer(weights, x, mask, dropout_key, number)
            outputs.append(x)
            if training:
                weights = tf.nest.map_structure(self._next_use, weights)
        return outputs, x, weights

    def _next_use(self, weight: tf.Tensor) -> tf.Tensor:
        """Return a weight for the next layer; its gradient is summed before another is added."""
        return tf.identity(weight)

    def _recompute(
        self,
        layer: LayerFunction,
        weights: Any,
        x: Hidden,
        mask: tf.Tensor,
        dropout_key: tf.Tensor | None,
        numbers: range,
        chunks: int,
    ) -> tuple[list[Hidden], Hidden, Any]:
        """Return the result of `repeat`, computing the batch in `chunks`.

        The gradient of all outputs but the last is an error.
        """

        def of_tensors(
            flat: Sequence[tf.Tensor],
            x: tf.Tensor,
            mask: tf.Tensor,
            dropout_key: tf.Tensor | None,
            number: tf.Tensor,
        ) -> tf.Tensor:
            packed = tf.nest.pack_sequence_as(weights, flat)
            y = layer(packed, self.enter(x), mask, dropout_key, numbers.start + number)
            return self.leave(y, positions_of(mask))

        flat, first = tf.nest.flatten(weights), self.leave(x, positions_of(mask))
        outputs = rematerialize.run_layers(
            of_tensors, flat, first, mask, dropout_key, len(numbers), chunks, self._fresh
        )
        shown = [self.enter(rematerialize.without_gradient(output)) for output in outputs]
        return shown, self.enter(outputs[-1]), tf.nest.map_structure(self._next_use, weights)

    def _fresh(self, x: tf.Tensor) -> tf.Tensor:
        """Return the input of a layer that is computed again."""
        return x

    def skipping_padding(self, input_mask: tf.Tensor) -> "Kernels":
        """Return operations for a batch of whose padded positions no result is read.

        They need not compute these positions. Nothing may drop hidden states or recompute.
        """
        return self

    def linear_cross_entropy(
        self,
        x: tf.Tensor,
        table: tf.Tensor,
        bias: tf.Tensor,
        labels: tf.Tensor,
        weights: tf.Tensor,
        dtype: tf.DType,
    ) -> tf.Tensor:
        """Return the weighted sums of cross-entropies and correct predictions of x table^T + bias.

        Args:
          x: float32 [N, E].
          table: float32 [V, E].
          bias: float32 [V].
          labels: int32 [N].
          weights: float32 [N], without gradient.
          dtype: float32 or bfloat16, in which the products may be computed.

        Returns:
          float32 [2]. The first sum is NaN if any label is not in [0, V). On a TPU, a loss above
          75 counts as 75. The second sum has no gradient. In bfloat16, more logits are equal; only
          the first of equal logits counts as the largest, so that fewer predictions are correct.
        """
        logits = tf.nn.bias_add(tf.matmul(x, table, transpose_b=True), bias)
        losses, is_right = cross_entropy(logits, labels)
        right = tf.cast(is_right, tf.float32)
        return tf.stack([tf.reduce_sum(losses * weights), tf.reduce_sum(right * weights)])


class LoopedKernels(Kernels):
    """Outside training, consecutive layers with the same weights are a loop in the graph.

    LiteRT's kernels copy the weights into their own layout once per product in the graph.
    """

    def repeat(
        self,
        layer: LayerFunction,
        weights: Any,
        x: Hidden,
        mask: tf.Tensor,
        dropout_key: tf.Tensor | None,
        numbers: range,
        training: bool,
        chunks: int | None = None,
    ) -> tuple[list[Hidden], Hidden, Any]:
        """Compute `Kernels.repeat`, but return only the hidden states after the last layer."""
        shape = positions_of(mask)

        def step(number: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            y = layer(weights, self.enter(x), mask, dropout_key, number)
            return number + 1, self.leave(y, shape)  # [B, S, H], as LiteRT must know its shape

        begin = tf.constant(numbers.start), self.leave(x, shape)
        _, last = tf.while_loop(lambda number, _: number < numbers.stop, step, begin)
        return [self.enter(last)], self.enter(last), weights


PLAIN, LOOPED = Kernels(), LoopedKernels()
