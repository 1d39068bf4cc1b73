"""The feed-forward sub-layer with its residual and LayerNorm."""

from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.models.kernels.interface import PLAIN, Hidden, Kernels
from albert_tf.models.layers import common
from albert_tf.models.layers.configured import ConfigMixin


class FeedForwardWeights(NamedTuple):
    """The values of the variables, float32."""

    inner_kernel: tf.Tensor  # [H, F], or [H, 2 F] with the gate first
    inner_bias: tf.Tensor  # [F] or [2 F]
    output_kernel: tf.Tensor  # [F, H]
    output_bias: tf.Tensor  # [H]
    gamma: tf.Tensor  # [H]
    beta: tf.Tensor  # [H]


@tf_keras.saving.register_keras_serializable("albert_tf")
class FeedForward(ConfigMixin, tf_keras.layers.Layer):
    """LayerNorm(x + dropout(W_2 activation(W_1 x))), [B, S, H] -> [B, S, H], inner width F.

    The gated form is W_2 (activation(W_g x) * W_1 x). `common.residual` describes the position of
    the LayerNorm. `weight_tensors` and `compute` work as in `SelfAttention`.
    """

    def __init__(self, config: AlbertConfig, name: str = "feed_forward", **kwargs: Any) -> None:
        super().__init__(config, name=name, **kwargs)
        width = config.inner_size if config.ffn == "plain" else 2 * config.inner_size
        self.intermediate = common.Affine(config, width, "intermediate")
        scale = common.output_scale(config)
        self.output_dense = common.Affine(config, config.hidden_size, "output", scale)
        self.layer_norm = common.layer_norm(config.layer_norm_eps, "layer_norm")

    def build(self, input_shape: object) -> None:
        """Create the variables."""
        common.build((self.intermediate, self.layer_norm), self.config.hidden_size)
        common.build((self.output_dense,), self.config.inner_size)
        super().build(input_shape)

    def weight_tensors(self) -> FeedForwardWeights:
        """Return the values of the variables."""
        inner, output, norm = self.intermediate, self.output_dense, self.layer_norm
        variables = inner.kernel, inner.bias, output.kernel, output.bias, norm.gamma, norm.beta
        return FeedForwardWeights(*map(tf.convert_to_tensor, variables))

    def call(
        self, x: tf.Tensor, dropout_key: common.DropoutKey | None = None, training: bool = False
    ) -> tf.Tensor:
        """Apply the layer; see the class for shapes."""
        weights = self.weight_tensors()
        dropout_key = common.dropout_key_of(self.config, dropout_key, training)
        hidden = self.compute(PLAIN, weights, PLAIN.enter(x), dropout_key)
        return PLAIN.leave(hidden, common.shape_of(x)[:2])

    def compute(
        self,
        ops: Kernels,
        weights: FeedForwardWeights,
        x: Hidden,
        dropout_key: common.DropoutKey | None = None,
    ) -> Hidden:
        """Apply the layer as a pure function of hidden states."""
        config = self.config

        def transform(x: Hidden) -> tf.Tensor:
            inner = ops.affine(x, weights.inner_kernel, weights.inner_bias)  # [.., F] or [.., 2 F]
            inner = ops.activation(inner, config.activation, config.ffn == "gated")  # [.., F]
            return ops.affine(inner, weights.output_kernel, weights.output_bias)

        return common.residual(ops, transform, x, weights, config, dropout_key)
