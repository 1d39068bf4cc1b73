"""Parts that layers share: initializers, affine maps, LayerNorm, residuals, dropout, pooling."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.models.kernels.interface import PLAIN, Dropout, Hidden, Kernels, Norm
from albert_tf.models.kernels.interface import shape_of as shape_of
from albert_tf.models.layers.configured import ConfigMixin, Float32Layer

# A dropout key is an int32 [2] tensor. Each dropout site folds its own number into it, so that a
# mask depends only on (key, site). It is the same in a recomputed forward pass and on every device.
DropoutKey: TypeAlias = tf.Tensor
TINY_SQUARE = 1e-12  # the least squared length of a vector that becomes one of length 1


def initializer(config: AlbertConfig, scale: float = 1.0) -> tf_keras.initializers.Initializer:
    """Return a truncated normal of stddev `scale * initializer_range` for kernels and tables."""
    return tf_keras.initializers.TruncatedNormal(stddev=scale * config.initializer_range)


def output_scale(config: AlbertConfig) -> float:
    """Return the scale of the initial kernels whose products are added to the residual.

    It is 1 / sqrt(2 L) for pre-norm, so that the sum over all sub-layers starts as large as one of
    them, and 1 for post-norm.
    """
    return (2 * config.num_layers) ** -0.5 if config.norm == "pre" else 1.0


def dense(config: AlbertConfig, units: int, name: str) -> tf_keras.layers.Dense:
    """Return a dense layer with bias, in float32 under every precision policy."""
    return tf_keras.layers.Dense(
        units, kernel_initializer=initializer(config), dtype=tf.float32, name=name
    )


@tf_keras.saving.register_keras_serializable("albert_tf")
class Affine(ConfigMixin, Float32Layer):
    """The map x W + b in x's dtype, [M, K] -> [M, units]; its variables are float32.

    Other layers read `kernel` [K, units] and `bias` [units] to compute as pure functions of
    tensors. `scale` multiplies the standard deviation of the kernel's initial values.
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
        """Create the variables."""
        shape = (input_shape[-1], self.units)
        first = initializer(self.config, self.scale)
        self.kernel = self.add_weight("kernel", shape, initializer=first)
        self.bias = self.add_weight("bias", (self.units,), initializer="zeros")
        super().build(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return super().get_config() | {"units": self.units, "scale": self.scale}

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Apply the layer; see the class for shapes."""
        return PLAIN.affine(x, self.kernel, self.bias)


def layer_norm(eps: float, name: str) -> tf_keras.layers.LayerNormalization:
    """Return a LayerNorm over the last axis, in float32 under every precision policy."""
    return tf_keras.layers.LayerNormalization(epsilon=eps, dtype=tf.float32, name=name)


def build(layers: Iterable[tf_keras.layers.Layer], width: int) -> None:
    """Create the variables of layers whose input is [B, S, width], under the layers' names."""
    for layer in layers:
        if layer.built:
            continue
        with tf.name_scope(layer.name):
            layer.build([None, None, width])


def residual(
    ops: Kernels,
    sub_layer: Callable[[Hidden], tf.Tensor],
    x: Hidden,
    weights: Any,
    config: AlbertConfig,
    dropout_key: DropoutKey | None,
    select: Callable[[Hidden], Hidden] = lambda x: x,
) -> Hidden:
    """Apply a sub-layer f with its residual connection, LayerNorm and dropout.

    Post-norm: LayerNorm(x + dropout(f(x))). Pre-norm: x + dropout(f(LayerNorm(x))). `weights` has
    `gamma` and `beta` [H]. If f returns only some positions, `select` selects the same ones of x.
    """
    norm = Norm(weights.gamma, weights.beta, config.layer_norm_eps)
    dropout = Dropout.of(config.hidden_dropout, dropout_key)
    if config.norm == "post":
        return ops.add_norm(select(x), sub_layer(x), norm, dropout)
    return ops.add(select(x), sub_layer(ops.add_norm(x, None, norm)), dropout)


def dropout(x: tf.Tensor, rate: float, dropout_key: DropoutKey | None) -> tf.Tensor:
    """Set elements to zero with probability `rate`, for heads; see `Kernels.dropout`."""
    return PLAIN.dropout(x, Dropout.of(rate, dropout_key))


def fold_in(dropout_key: DropoutKey | None, number: int | tf.Tensor) -> DropoutKey | None:
    """Return the key of a numbered part of the computation; None (no dropout) stays None.

    Each of the first two words is a polynomial in the numbers folded in, modulo 2^32, which
    `dropout` hashes. A third word, the number of a part of the batch, stays the same.
    """
    if dropout_key is None:
        return None
    words = tf.cast(dropout_key[:2], tf.int32) * tf.constant([1664525, 22695477]) + (number + 1)
    return tf.concat([words, dropout_key[2:]], 0)


def dropout_key_of(
    config: AlbertConfig, key: DropoutKey | None, training: bool
) -> DropoutKey | None:
    """Return the key of a call: None if it drops nothing, a new one if it was given none."""
    if not training or config.hidden_dropout == config.attention_dropout == 0.0:
        return None
    return new_dropout_key() if key is None else key


def new_dropout_key() -> DropoutKey:
    """Return a random key for a call without one, as in `fit`; it follows `tf.random.set_seed`."""
    return tf.random.uniform([2], minval=0, maxval=2**31 - 1, dtype=tf.int32)


def mean_of(hidden: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Return the mean of [B, S, H] over the positions with the mask [B, S] 1, 0 without any."""
    visible = tf.expand_dims(tf.cast(mask, tf.float32), 2)  # [B, S, 1]
    total = tf.reduce_sum(visible * hidden, axis=1)
    return total / tf.maximum(tf.reduce_sum(visible, axis=1), 1.0)


def normalized(vectors: tf.Tensor) -> tf.Tensor:
    """Return the vectors [..., D] with length 1; a vector of zeros stays one."""
    return tf.math.l2_normalize(vectors, axis=-1, epsilon=TINY_SQUARE)
