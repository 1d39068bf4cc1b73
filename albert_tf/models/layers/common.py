"""What every layer shares: initial values, matrix product, LayerNorm, activation, keyed dropout."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.models.layers import fused, islands
from albert_tf.models.layers.configured import ConfigMixin, Float32Layer

# A dropout key is an int32 [2] tensor. Each dropout site folds its own number into it, so that a
# mask depends on (key, site) alone: the same in a recomputed forward pass, eager, graph and XLA.
DropoutKey: TypeAlias = tf.Tensor


def initializer(config: AlbertConfig, scale: float = 1.0) -> tf_keras.initializers.Initializer:
    """Truncated normal of `scale * initializer_range`, for all kernels and tables."""
    return tf_keras.initializers.TruncatedNormal(stddev=scale * config.initializer_range)


def output_scale(config: AlbertConfig) -> float:
    """Of the initial kernels whose products are added to the residual: 1 / sqrt(2 L) for pre-norm.

    So that the sum over all sub-layers begins as large as one of them.
    """
    return (2 * config.num_layers) ** -0.5 if config.norm == "pre" else 1.0


def dense(config: AlbertConfig, units: int, name: str) -> tf_keras.layers.Dense:
    """A dense layer with bias, in float32 under every precision policy."""
    return tf_keras.layers.Dense(
        units, kernel_initializer=initializer(config), dtype=tf.float32, name=name
    )


@tf_keras.saving.register_keras_serializable("albert_tf")
class Affine(ConfigMixin, Float32Layer):
    """x W + b in x's dtype, [M, K] -> [M, units]; its variables are float32.

    Attributes: `kernel` [K, units] and `bias` [units], also for layers that compute with them as
    pure functions of tensors.

    Args:
      scale: of the kernel's initial values.
    """

    def __init__(
        self,
        config: AlbertConfig,
        units: int,
        name: str = "affine",
        scale: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, name=name, autocast=False, **kwargs)
        self.units, self.scale = units, scale

    def build(self, input_shape: Sequence[int | None]) -> None:
        shape = (input_shape[-1], self.units)
        first = initializer(self.config, self.scale)
        self.kernel = self.add_weight("kernel", shape, initializer=first)
        self.bias = self.add_weight("bias", (self.units,), initializer="zeros")
        super().build(input_shape)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"units": self.units, "scale": self.scale}

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        return affine(x, self.kernel, self.bias, training)


def layer_norm(eps: float, name: str) -> tf_keras.layers.LayerNormalization:
    """LayerNorm over the last axis, in float32 under every precision policy."""
    return tf_keras.layers.LayerNormalization(epsilon=eps, dtype=tf.float32, name=name)


def build(layers: Iterable[tf_keras.layers.Layer], width: int) -> None:
    """Creates the variables of layers that take [M, width], under the layers' names."""
    for layer in layers:
        if layer.built:
            continue
        with tf.name_scope(layer.name):
            layer.build([None, width])


def shape_of(x: tf.Tensor) -> list:
    """The sizes of `x`: numbers where they are known, scalar tensors elsewhere."""
    dynamic = tf.shape(x)
    return [dynamic[i] if size is None else size for i, size in enumerate(x.shape)]


def affine(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, training: bool = False) -> tf.Tensor:
    """x W + b in x's dtype, [M, K] -> [M, units].

    Two dimensions: the gradient of a product of three is an einsum, 1.3 to 1.7 times slower.
    `bias_add`, not `+`: TensorFlow fuses it into the product.
    """
    kernel, bias = tf.cast(kernel, x.dtype), tf.cast(bias, x.dtype)
    if training:
        return fused.affine(x, kernel, bias)
    return tf.nn.bias_add(tf.matmul(x, kernel), bias)


def activation(x: tf.Tensor, name: str, training: bool = False) -> tf.Tensor:
    """`gelu` in the tanh form that ALBERT was trained with, or `relu` (the Chinese models)."""
    if name == "relu":
        return tf.nn.relu(x)
    return fused.gelu(x) if training else tf.nn.gelu(x, approximate=True)


def gated_activation(x: tf.Tensor, name: str, training: bool = False) -> tf.Tensor:
    """activation(gate) * value of [M, 2 F], the gate first: [M, F]."""
    if training and name == "gelu":
        return fused.gated_gelu(x)
    gate, value = tf.split(x, 2, -1)
    return activation(gate, name, training) * value


def rotate(x: tf.Tensor, training: bool = False) -> tf.Tensor:
    """Rotary positions, [B, N, S, D] -> the same (arXiv 2104.09864, in halves as GPT-NeoX).

    Numbers i and i + D / 2 of position s turn by the angle s * 10000^(-2 i / D).
    """
    return fused.rotate(x) if training else islands.turned(x, 1.0)


def softmax(logits: tf.Tensor, mask: tf.Tensor, training: bool = False) -> tf.Tensor:
    """softmax(logits + mask) over the last axis, in float32; the result in the logits' dtype."""
    if training:
        return fused.softmax(logits, mask)
    return tf.cast(tf.nn.softmax(tf.cast(logits, tf.float32) + mask), logits.dtype)


def residual(
    sub_layer: Callable[[tf.Tensor], tf.Tensor],
    x: tf.Tensor,
    norm: tuple[tf.Tensor, tf.Tensor],
    config: AlbertConfig,
    key: DropoutKey | None,
    training: bool,
) -> tf.Tensor:
    """Post-norm: LayerNorm(x + dropout(f(x))). Pre-norm: x + dropout(f(LayerNorm(x))).

    Args:
      sub_layer: f, [M, H] -> [M, H].
      norm: gamma [H] and beta [H].
    """
    scaling, rate = (*norm, config.layer_norm_eps), config.hidden_dropout
    if config.norm == "post":
        return add_dropout_norm(x, sub_layer(x), scaling, rate, key, training)
    update = sub_layer(add_dropout_norm(x, None, scaling, 0.0, None, training))
    return x + dropout(update, rate, key)


def add_dropout_norm(
    x: tf.Tensor,
    update: tf.Tensor | None,
    norm: tuple[tf.Tensor, tf.Tensor, float],
    rate: float,
    key: DropoutKey | None,
    training: bool = False,
) -> tf.Tensor:
    """LayerNorm(x + dropout(update)), both [M, H], in float32; the result in x's dtype.

    Dropout is of training alone.

    Args:
      update: None for LayerNorm(x).
      norm: gamma [H], beta [H] and epsilon.
    """
    if training:
        return fused.add_dropout_norm(x, update, *norm, rate, key if rate else None)
    gamma, beta, eps = norm
    normal, _ = islands.normalized_sum(x, update, None, eps)
    return tf.cast(normal * gamma + beta, x.dtype)


def dropout(x: tf.Tensor, rate: float, key: DropoutKey | None) -> tf.Tensor:
    """`fused.dropout`, or x itself where `key` is None or `rate` is 0."""
    return x if key is None or rate == 0.0 else fused.dropout(x, rate, key)


def fold_in(key: DropoutKey | None, number: int | tf.Tensor) -> DropoutKey | None:
    """The key of a numbered part of what `key` is the key of; None stays None (no dropout).

    A polynomial in the numbers, modulo 2^32 in each word; `dropout` hashes it.
    """
    if key is None:
        return None
    words = tf.cast(key[:2], tf.int32) * tf.constant([1664525, 22695477]) + (number + 1)
    return tf.concat([words, key[2:]], 0)


def new_dropout_key() -> DropoutKey:
    """A key for a call that was given none, as in `fit`: follows `tf.random.set_seed`."""
    return tf.random.uniform([2], minval=0, maxval=2**31 - 1, dtype=tf.int32)
