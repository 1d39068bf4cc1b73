"""What every layer shares: initial values, LayerNorm, activation, keyed dropout."""

from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf
import tf_keras

from albert_tf.config import AlbertConfig

# A dropout key is an int32 [2] tensor. Each dropout site folds its own number into it, so that a
# mask depends on (key, site) alone: the same in a recomputed forward pass, eager, graph and XLA.
DropoutKey: TypeAlias = tf.Tensor


def initializer(config: AlbertConfig) -> tf_keras.initializers.Initializer:
    """Truncated normal of `initializer_range`, for all kernels and tables."""
    return tf_keras.initializers.TruncatedNormal(stddev=config.initializer_range)


def dense(config: AlbertConfig, units: int, name: str) -> tf_keras.layers.Dense:
    """A dense layer with bias, [..., K] -> [..., units]."""
    return tf_keras.layers.Dense(units, kernel_initializer=initializer(config), name=name)


def layer_norm(eps: float, name: str) -> tf_keras.layers.LayerNormalization:
    """LayerNorm over the last axis, in float32 under every precision policy."""
    return tf_keras.layers.LayerNormalization(epsilon=eps, dtype=tf.float32, name=name)


def activation(name: str) -> Callable[[tf.Tensor], tf.Tensor]:
    """`gelu` in the tanh form that ALBERT was trained with, or `relu` (the Chinese models)."""
    return {"gelu": lambda x: tf.nn.gelu(x, approximate=True), "relu": tf.nn.relu}[name]


def fold_in(key: DropoutKey | None, number: int | tf.Tensor) -> DropoutKey | None:
    """The key of a numbered part of what `key` is the key of; None stays None (no dropout)."""
    if key is None:
        return None
    return tf.random.experimental.stateless_fold_in(_without_sign(key), number)


def dropout(x: tf.Tensor, rate: float, key: DropoutKey | None) -> tf.Tensor:
    """Zeroes each element with probability `rate`, scales the rest by 1 / (1 - rate).

    Args:
      x: floating tensor of any shape.
      rate: in [0, 1).
      key: int32 [2]; None means no dropout.
    """
    if key is None or rate == 0.0:
        return x
    # Integers, not floats: stateless_uniform's floats differ between the CPU kernel and XLA.
    bits = tf.random.stateless_uniform(tf.shape(x), _without_sign(key), None, None, tf.uint32)
    keep = bits >= tf.constant(round(rate * 2**32), tf.uint32)
    return tf.where(keep, x * tf.cast(1 / (1 - rate), x.dtype), tf.zeros([], x.dtype))


def _without_sign(key: DropoutKey) -> tf.Tensor:
    # The CPU kernel and XLA widen a negative number to 64 bits in two ways: other random bits.
    return tf.bitwise.bitwise_and(tf.cast(key, tf.int32), tf.int32.max)


def new_dropout_key() -> DropoutKey:
    """A key for a call that was given none, as in `fit`: follows `tf.random.set_seed`."""
    return tf.random.uniform([2], minval=0, maxval=2**31 - 1, dtype=tf.int32)
