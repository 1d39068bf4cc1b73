"""What every layer shares: initial values, matrix product, LayerNorm, activation, keyed dropout."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.models.layers import fused
from albert_tf.models.layers.configured import ConfigMixin, Float32Layer

# A dropout key is an int32 [2] tensor. Each dropout site folds its own number into it, so that a
# mask depends on (key, site) alone: the same in a recomputed forward pass, eager, graph and XLA.
DropoutKey: TypeAlias = tf.Tensor


def initializer(config: AlbertConfig) -> tf_keras.initializers.Initializer:
    """Truncated normal of `initializer_range`, for all kernels and tables."""
    return tf_keras.initializers.TruncatedNormal(stddev=config.initializer_range)


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
    """

    def __init__(
        self, config: AlbertConfig, units: int, name: str = "affine", **kwargs: Any
    ) -> None:
        super().__init__(config, name=name, autocast=False, **kwargs)
        self.units = units

    def build(self, input_shape: Sequence[int | None]) -> None:
        shape = (input_shape[-1], self.units)
        self.kernel = self.add_weight("kernel", shape, initializer=initializer(self.config))
        self.bias = self.add_weight("bias", (self.units,), initializer="zeros")
        super().build(input_shape)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"units": self.units}

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


def softmax(logits: tf.Tensor, mask: tf.Tensor, training: bool = False) -> tf.Tensor:
    """softmax(logits + mask) over the last axis, in float32; the result in the logits' dtype."""
    if training:
        return fused.softmax(logits, mask)
    return tf.cast(tf.nn.softmax(tf.cast(logits, tf.float32) + mask), logits.dtype)


def add_dropout_norm(
    x: tf.Tensor,
    update: tf.Tensor,
    norm: tuple[tf.Tensor, tf.Tensor, float],
    rate: float,
    key: DropoutKey | None,
    training: bool = False,
) -> tf.Tensor:
    """LayerNorm(x + dropout(update)), both [M, H], in float32; the result in x's dtype.

    Dropout is of training alone.

    Args:
      norm: gamma [H], beta [H] and epsilon.
    """
    if training:
        return fused.add_dropout_norm(x, update, *norm, rate, key if rate else None)
    gamma, beta, eps = norm
    normal, _ = fused.normalized_sum(x, update, None, eps)
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
