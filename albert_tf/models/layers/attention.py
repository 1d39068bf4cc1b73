"""Multi-head self-attention with its residual and LayerNorm."""

from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.models.kernels.interface import (
    PLAIN,
    Dropout,
    Hidden,
    Kernels,
    Projections,
    positions_of,
)
from albert_tf.models.layers import common
from albert_tf.models.layers.configured import ConfigMixin

MASKED = -10000.0  # added to the logits of padding; finite, so that rows of padding stay finite


class AttentionWeights(NamedTuple):
    """The values of the variables, float32."""

    projections: Any  # as `Kernels.projections` returns them
    output_kernel: tf.Tensor  # [H, H]
    output_bias: tf.Tensor  # [H]
    gamma: tf.Tensor  # [H]
    beta: tf.Tensor  # [H]


@tf_keras.saving.register_keras_serializable("albert_tf")
class SelfAttention(ConfigMixin, tf_keras.layers.Layer):
    """LayerNorm(x + dropout(W_o softmax(q k^T / sqrt(D) + mask) v)), post-norm as in BERT.

    For pre-norm, see `common.residual`.

    Inputs: x [B, S, H]; mask [B, 1, 1, S] float32, 0 where visible and -10000 where padded.
    Output: [B, S, H]. The softmax is in float32 under every precision policy.

    The layer owns its variables and returns them as tensors (`weight_tensors`). `compute` is a pure
    function of tensors and of the operations to use, so that the stack can also run it again in the
    backward pass. `call` uses TensorFlow's own operations.
    """

    def __init__(self, config: AlbertConfig, name: str = "attention", **kwargs: Any) -> None:
        super().__init__(config, name=name, **kwargs)
        self.query = common.Affine(config, config.hidden_size, "query")
        self.key = common.Affine(config, config.hidden_size, "key")
        self.value = common.Affine(config, config.hidden_size, "value")
        scale = common.output_scale(config)
        self.output_dense = common.Affine(config, config.hidden_size, "output", scale)
        self.layer_norm = common.layer_norm(config.layer_norm_eps, "layer_norm")

    def build(self, input_shape: object) -> None:
        """Create the variables."""
        parts = (self.query, self.key, self.value, self.output_dense, self.layer_norm)
        common.build(parts, self.config.hidden_size)
        super().build(input_shape)

    def weight_tensors(self, ops: Kernels) -> AttentionWeights:
        """Return the values of the variables, as `ops` take them."""
        inputs, output = (self.query, self.key, self.value), self.output_dense
        variables = [part.kernel for part in inputs] + [part.bias for part in inputs]
        variables += [output.kernel, output.bias, self.layer_norm.gamma, self.layer_norm.beta]
        *projections, kernel, bias, gamma, beta = map(tf.convert_to_tensor, variables)
        projected = ops.projections(Projections(*projections), self.config.num_heads)
        return AttentionWeights(projected, kernel, bias, gamma, beta)

    def call(
        self,
        x: tf.Tensor,
        mask: tf.Tensor,
        dropout_key: common.DropoutKey | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """Apply the layer; see the class for shapes."""
        weights = self.weight_tensors(PLAIN)
        dropout_key = common.dropout_key_of(self.config, dropout_key, training)
        hidden = self.compute(PLAIN, weights, PLAIN.enter(x), mask, dropout_key)
        return PLAIN.leave(hidden, common.shape_of(x)[:2])

    def compute(
        self,
        ops: Kernels,
        weights: AttentionWeights,
        x: Hidden,
        mask: tf.Tensor,
        dropout_key: common.DropoutKey | None = None,
        num_queries: int | tf.Tensor | None = None,
    ) -> Hidden:
        """Apply the layer as a pure function of hidden states.

        With `num_queries`, return only the hidden states of the first positions.
        """
        config = self.config

        def attention(x: Hidden) -> tf.Tensor:
            # q = (W_q x + b_q) / sqrt(D), k = W_k x + b_k, v = W_v x + b_v; each [B, N, S, D]
            queries, keys, values = ops.into_heads(
                x, weights.projections, mask, config.num_heads, num_queries
            )
            if config.positions == "rotary":
                queries, keys = ops.rotate(queries), ops.rotate(keys)
            # dropout(softmax(q k^T + mask)) v, [B, N, S, D]
            dropout = Dropout.of(config.attention_dropout, common.fold_in(dropout_key, 0))
            context = ops.attend(queries, keys, values, mask, dropout)
            # W_o (the heads side by side) + b_o, like x
            return ops.out_of_heads(context, weights.output_kernel, weights.output_bias)

        def select(x: Hidden) -> Hidden:
            if num_queries is None:
                return x
            return ops.enter(ops.leave(x, positions_of(mask))[:, :num_queries])

        residual_key = common.fold_in(dropout_key, 1)
        return common.residual(ops, attention, x, weights, config, residual_key, select)


def additive_mask(input_mask: tf.Tensor) -> tf.Tensor:
    """Convert a mask [B, S] of 1 and 0 to float32 [B, 1, 1, S], to be added to attention logits."""
    mask = (1.0 - tf.cast(input_mask, tf.float32)) * MASKED
    # Not mask[:, None, None]: not every runtime has a slice with two new axes.
    return tf.expand_dims(tf.expand_dims(mask, 1), 1)
