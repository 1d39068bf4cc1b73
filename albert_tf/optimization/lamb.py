"""LAMB, as in google-research/albert."""

from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.optimization.adamw import AdamW


@tf_keras.saving.register_keras_serializable("albert_tf")
class Lamb(AdamW):
    """AdamW with updates scaled to the norm of the weight (arXiv 1904.00962, Algorithm 2).

    update = m / (sqrt(v) + eps) + decay * w; ratio = |w| / |update|, or 1 if either norm is 0;
    w -= lr * ratio * update. There is no bias correction. Excluded variables (LayerNorm, biases)
    get neither decay nor ratio.
    """

    def __init__(self, *args: Any, name: str = "Lamb", **kwargs: Any) -> None:
        super().__init__(*args, name=name, **kwargs)

    def _direction(
        self, gradient: tf.Tensor, variable: tf.Variable, is_finite: tf.Tensor
    ) -> tf.Tensor:
        update = super()._direction(gradient, variable, is_finite)
        if self.is_excluded(variable):
            return update
        weight_norm, update_norm = tf.norm(variable), tf.norm(update)
        both = tf.logical_and(weight_norm > 0, update_norm > 0)
        return update * tf.where(both, tf.math.divide_no_nan(weight_norm, update_norm), 1.0)
