"""Multi-head self-attention with its residual and LayerNorm."""

from typing import Any, NamedTuple

import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.models.layers import common, target, tpu
from albert_tf.models.layers.configured import ConfigMixin
from albert_tf.models.layers.packing import Packing

MASKED = -10000.0  # added to the logits of padding; finite, so that rows of padding stay finite


class AttentionWeights(NamedTuple):
    """The values of the variables, float32: kernels [H, H], all others [H]."""

    query_kernel: tf.Tensor
    key_kernel: tf.Tensor
    value_kernel: tf.Tensor
    output_kernel: tf.Tensor
    query_bias: tf.Tensor
    key_bias: tf.Tensor
    value_bias: tf.Tensor
    output_bias: tf.Tensor
    gamma: tf.Tensor
    beta: tf.Tensor


class JoinedWeights(NamedTuple):
    """`AttentionWeights` for one product; 1 / sqrt(D) is folded into the query's weights."""

    qkv_kernel: tf.Tensor  # [H, 3 H]
    qkv_bias: tf.Tensor  # [3 H]
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
    function of tensors, so that the stack can also run it again in the backward pass.
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

    def weight_tensors(self) -> AttentionWeights:
        """Return the values of the variables."""
        parts = (self.query, self.key, self.value, self.output_dense)
        variables = [part.kernel for part in parts] + [part.bias for part in parts]
        variables += [self.layer_norm.gamma, self.layer_norm.beta]
        return AttentionWeights(*map(tf.convert_to_tensor, variables))

    def joined(self, weights: AttentionWeights) -> JoinedWeights:
        """Return the weights for one product of query, key and value."""
        scale = self.config.head_size**-0.5
        kernels = [weights.query_kernel * scale, weights.key_kernel, weights.value_kernel]
        biases = [weights.query_bias * scale, weights.key_bias, weights.value_bias]
        return JoinedWeights(
            tf.concat(kernels, 1),
            tf.concat(biases, 0),
            weights.output_kernel,
            weights.output_bias,
            weights.gamma,
            weights.beta,
        )

    def call(
        self,
        x: tf.Tensor,
        mask: tf.Tensor,
        key: common.DropoutKey | None = None,
        training: bool = False,
    ) -> tf.Tensor:
        """Apply the layer; see the class for shapes."""
        return tpu.twins(self.compute(self.weight_tensors(), x, mask, key, training)).residual

    def compute(
        self,
        weights: AttentionWeights | JoinedWeights,
        x: common.Hidden,
        mask: tf.Tensor,
        key: common.DropoutKey | None,
        training: bool,
        packing: Packing | None = None,
        num_queries: int | tf.Tensor | None = None,
    ) -> common.Hidden:
        """Apply the layer as a pure function of tensors; with `packing`, [T, H] -> [T, H].

        With `num_queries`, outside training, return only the outputs of the first positions,
        [B, num_queries, H].
        """
        assert num_queries is None or not training
        shape = common.shape_of(tpu.twins(x).residual)

        def attend(flat: tf.Tensor) -> tf.Tensor:
            if training and target.is_tpu():
                assert isinstance(weights, AttentionWeights)
                return self._attend_on_tpu(weights, flat, mask, key)
            joined = weights if isinstance(weights, JoinedWeights) else self.joined(weights)
            rows = packing.shape if packing else shape[:2]  # [B, S]
            return self._attend(joined, flat, rows, mask, key, training, packing, num_queries)

        norm, flat = (weights.gamma, weights.beta), common.flat(x, shape[-1], training)
        own = common.fold_in(key, 1)
        if num_queries is not None:

            def first(flat: tf.Tensor) -> tf.Tensor:
                return tf.reshape(tf.reshape(flat, shape)[:, :num_queries], [-1, shape[2]])

            out = common.residual(attend, flat, norm, self.config, own, training, first)
            return tf.reshape(out, [shape[0], num_queries, shape[2]])
        out = common.residual(attend, flat, norm, self.config, own, training)
        return out if isinstance(out, tpu.Twins) else tf.reshape(out, shape)

    def _attend(
        self,
        weights: JoinedWeights,
        flat: tf.Tensor,
        shape: list,
        mask: tf.Tensor,
        key: common.DropoutKey | None,
        training: bool,
        packing: Packing | None = None,
        num_queries: int | tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Return the attention of [B * S, H] or, with `packing`, of [T, H]; `shape` is [B, S].

        Comments have Q, `num_queries` or S, for the number of positions whose output is computed.
        """
        config = self.config
        qkv = common.affine(flat, weights.qkv_kernel, weights.qkv_bias, training)
        if packing is not None:
            qkv = packing.unpack(qkv)
        split = tf.reshape(qkv, [*shape, 3, config.num_heads, config.head_size])
        query, keys, values = tf.unstack(tf.transpose(split, [2, 0, 3, 1, 4]))  # [B, N, S, D]
        if num_queries is not None:
            query = query[:, :, :num_queries]
        if config.positions == "rotary":
            query, keys = common.rotate(query, training), common.rotate(keys, training)
        logits = tf.matmul(query, keys, transpose_b=True)  # [B, N, Q, S]
        attended = common.softmax(logits, mask, training)
        attended = common.dropout(attended, config.attention_dropout, common.fold_in(key, 0))
        context = tf.transpose(tf.matmul(attended, values), [0, 2, 1, 3])  # [B, Q, N, D]
        context = tf.reshape(context, [-1, config.hidden_size])
        if packing is not None:
            context = packing.pack(context)
        return common.affine(context, weights.output_kernel, weights.output_bias, training)

    def _attend_on_tpu(
        self,
        weights: AttentionWeights,
        x: tf.Tensor,
        mask: tf.Tensor,
        key: common.DropoutKey | None,
    ) -> tf.Tensor:
        """Return the attention of [B, S, H] in training.

        The gradient of a bias takes a pass over [B, S, H]. Two of the three can do without: the
        softmax ignores the key's bias, unless rotations change it from position to position. Its
        rows sum to 1, unless there is dropout, so the value's bias passes through unchanged and
        becomes a part of the output's.
        """
        config, rate = self.config, self.config.attention_dropout
        heads = [config.num_heads, config.head_size]
        key_bias, value_bias = weights.key_bias, weights.value_bias
        output_bias = weights.output_bias
        if config.positions != "rotary":
            key_bias = tpu.without_gradient(key_bias)
        if not rate:
            output_bias += tf.linalg.matvec(weights.output_kernel, value_bias, transpose_a=True)
            value_bias = tf.zeros_like(value_bias)

        def project(kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
            kernel = tf.reshape(kernel, [config.hidden_size, *heads])
            return tpu.affine(x, kernel, tf.reshape(bias, heads), "bsh,hnd->bsnd")

        scale = config.head_size**-0.5
        query = project(weights.query_kernel * scale, weights.query_bias * scale)
        keys = project(weights.key_kernel, key_bias)
        values = project(weights.value_kernel, value_bias)
        if config.positions == "rotary":
            query, keys = tpu.rotate(query), tpu.rotate(keys)
        own = common.fold_in(key, 0) if rate else None
        parts = tpu.num_blocks(x.shape[0], x.shape[1], config.num_heads)
        context = tpu.attention(query, keys, values, mask, rate, own, parts)
        kernel = tf.reshape(weights.output_kernel, [*heads, config.hidden_size])
        return tpu.affine(context, kernel, output_bias, "bsnd,ndh->bsh")


def additive_mask(input_mask: tf.Tensor) -> tf.Tensor:
    """Convert a mask [B, S] of 1 and 0 to float32 [B, 1, 1, S], to be added to attention logits."""
    mask = (1.0 - tf.cast(input_mask, tf.float32)) * MASKED
    return tf.expand_dims(tf.expand_dims(mask, 1), 1)  # LiteRT cannot slice with two new axes
