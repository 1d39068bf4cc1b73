"""Functions shared by all layers: initializers, affine maps, LayerNorm, activations, dropout."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.models.layers import fused, target, tpu, xla
from albert_tf.models.layers.configured import ConfigMixin, Float32Layer

# A dropout key is an int32 [2] tensor. Each dropout site folds its own number into it, so that a
# mask depends only on (key, site). It is the same in a recomputed forward pass, eager, graph, XLA.
DropoutKey: TypeAlias = tf.Tensor
# The hidden states between two sub-layers: twins in training on a TPU.
Hidden: TypeAlias = tf.Tensor | tpu.Twins


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

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Apply the layer; see the class for shapes."""
        return affine(x, self.kernel, self.bias, training)


def layer_norm(eps: float, name: str) -> tf_keras.layers.LayerNormalization:
    """Return a LayerNorm over the last axis, in float32 under every precision policy."""
    return tf_keras.layers.LayerNormalization(epsilon=eps, dtype=tf.float32, name=name)


def build(layers: Iterable[tf_keras.layers.Layer], width: int) -> None:
    """Create the variables of layers whose input is [M, width], under the layers' names."""
    for layer in layers:
        if layer.built:
            continue
        with tf.name_scope(layer.name):
            layer.build([None, width])


def shape_of(x: tf.Tensor) -> list:
    """Return the sizes of `x`: numbers where they are static, scalar tensors elsewhere."""
    dynamic = tf.shape(x)
    return [dynamic[i] if size is None else size for i, size in enumerate(x.shape)]


def flat(x: Hidden, width: int, training: bool) -> Hidden:
    """Return x [B, S, H] as [B * S, H], except for training on a TPU.

    On a CPU, the gradient of a three-dimensional product would be an einsum, which is 1.3 to 1.7
    times slower. On a TPU, work is not fused into a product through a reshape.
    """
    return x if training and target.is_tpu() else tf.reshape(x, [-1, width])


def is_fused(training: bool) -> bool:
    """Return True if the operations of `fused` run instead of TensorFlow's own.

    They are for training on a CPU, where they were measured, and partly on a TPU. On a GPU, the
    plain operations run.
    """
    return training and not target.is_gpu()


def affine(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, training: bool = False) -> tf.Tensor:
    """Return x W + b in x's dtype, [M, K] -> [M, units].

    TensorFlow fuses `bias_add` into the product, but not `+`.
    """
    if training and target.is_tpu():
        return tpu.affine(x, kernel, bias)
    kernel, bias = tf.cast(kernel, x.dtype), tf.cast(bias, x.dtype)
    if is_fused(training):
        return fused.affine(x, kernel, bias)
    return tf.nn.bias_add(tf.matmul(x, kernel), bias)


def activation(x: tf.Tensor, name: str, training: bool = False) -> tf.Tensor:
    """Apply `gelu`, in the tanh form of ALBERT's training, or `relu` (the Chinese models)."""
    if name == "relu":
        return tf.nn.relu(x)
    return fused.gelu(x) if is_fused(training) else tf.nn.gelu(x, approximate=True)


def gated_activation(x: tf.Tensor, name: str, training: bool = False) -> tf.Tensor:
    """Return activation(gate) * value of x [M, 2 F], with the gate first: [M, F]."""
    if is_fused(training) and name == "gelu":
        return fused.gated_gelu(x)
    gate, value = tf.split(x, 2, -1)
    return activation(gate, name, training) * value


def rotate(x: tf.Tensor, training: bool = False) -> tf.Tensor:
    """Apply rotary positions to x [B, N, S, D] (arXiv 2104.09864, in halves as in GPT-NeoX).

    Elements i and i + D / 2 at position s are rotated by the angle s * 10000^(-2 i / D).
    """
    return fused.rotate(x) if is_fused(training) else xla.rotation(x, 1.0)


def softmax(logits: tf.Tensor, mask: tf.Tensor, training: bool = False) -> tf.Tensor:
    """Return the softmax of logits + mask over the last axis, computed in float32.

    The result has the dtype of the logits.
    """
    if is_fused(training):
        return fused.softmax(logits, mask)
    return tf.cast(tf.nn.softmax(tf.cast(logits, tf.float32) + mask), logits.dtype)


def residual(
    sub_layer: Callable[[tf.Tensor], tf.Tensor],
    x: Hidden,
    norm: tuple[tf.Tensor, tf.Tensor],
    config: AlbertConfig,
    key: DropoutKey | None,
    training: bool,
    select_rows: Callable[[tf.Tensor], tf.Tensor] = lambda x: x,
) -> Hidden:
    """Apply a sub-layer f with its residual connection, LayerNorm and dropout.

    Post-norm: LayerNorm(x + dropout(f(x))). Pre-norm: x + dropout(f(LayerNorm(x))). `sub_layer` is
    f, [M, H] -> [M, H]; `norm` is gamma [H] and beta [H]. If f returns only some of the M rows,
    `select_rows` selects the same rows of x.
    """
    scaling, rate = (*norm, config.layer_norm_eps), config.hidden_dropout
    added, operand = tpu.twins(x)
    if config.norm == "post":
        return add_dropout_norm(
            select_rows(added), sub_layer(operand), scaling, rate, key, training
        )
    normal = add_dropout_norm(added, None, scaling, 0.0, None, training)
    return select_rows(added) + dropout(sub_layer(tpu.twins(normal).operand), rate, key)


def add_dropout_norm(
    x: tf.Tensor,
    update: tf.Tensor | None,
    norm: tuple[tf.Tensor, tf.Tensor, float],
    rate: float,
    key: DropoutKey | None,
    training: bool = False,
) -> Hidden:
    """Return LayerNorm(x + dropout(update)) of [M, H], computed in float32, in x's dtype.

    If `update` is None, return LayerNorm(x). `norm` is gamma [H], beta [H] and epsilon. Dropout is
    applied only in training.
    """
    key = key if training and rate else None
    if is_fused(training):
        run = tpu.add_dropout_norm if target.is_tpu() else fused.add_dropout_norm
        return run(x, update, *norm, rate, key)
    gamma, beta, eps = norm
    normal, _ = xla.normalized_sum(x, update, key, eps, rate)
    return tf.cast(normal * gamma + beta, x.dtype)


def dropout(x: tf.Tensor, rate: float, key: DropoutKey | None) -> tf.Tensor:
    """Apply `fused.dropout`, or return x itself if `key` is None or `rate` is 0."""
    if key is None or rate == 0.0:
        return x
    return xla.dropped(x, rate, key) if target.is_gpu() else fused.dropout(x, rate, key)


def fold_in(key: DropoutKey | None, number: int | tf.Tensor) -> DropoutKey | None:
    """Return the key of a numbered part of the computation; None (no dropout) stays None.

    Each of the first two words is a polynomial in the numbers folded in, modulo 2^32, which
    `dropout` hashes. A third word, the number of a part of the batch, is kept.
    """
    if key is None:
        return None
    words = tf.cast(key[:2], tf.int32) * tf.constant([1664525, 22695477]) + (number + 1)
    return tf.concat([words, key[2:]], 0)


def new_dropout_key() -> DropoutKey:
    """Return a random key for a call without one, as in `fit`; it follows `tf.random.set_seed`."""
    return tf.random.uniform([2], minval=0, maxval=2**31 - 1, dtype=tf.int32)
