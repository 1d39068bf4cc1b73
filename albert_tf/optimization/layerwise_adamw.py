"""AdamW with a learning rate for each variable."""

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.optimization.adamw import AdamW


@tf_keras.saving.register_keras_serializable("albert_tf")
class LayerwiseAdamW(AdamW):
    """AdamW with a factor of the learning rate for each variable, in the order of `build`.

    Gradients are made dense: with slices, words that occur twice would be counted wrongly in the
    norm by which gradients are clipped.

    Args:
      factors: the factor of each variable.
      bias_correction: apply Adam's bias correction (arXiv 1412.6980, end of section 2), a factor of
        m / sqrt(v): sqrt(1 - beta_2^t) / (1 - beta_1^t) in step t = 1, 2, ... Without it, as in
        BERT and ALBERT, early updates are up to 6.6 times as large, and some seeds learn nothing
        (arXiv 2006.04884).
    """

    def __init__(
        self, *args: Any, factors: Sequence[float], bias_correction: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.factors, self.bias_correction = list(factors), bias_correction

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, tf.Variable]], *args: Any, **kwargs: Any
    ) -> tf.Variable:
        """Apply the gradients, made dense; variables without a gradient are skipped."""
        dense = [  # the pooler of span models has none; tf_keras would warn
            (tf.convert_to_tensor(gradient), variable)
            for gradient, variable in grads_and_vars
            if gradient is not None
        ]
        return super().apply_gradients(dense, *args, **kwargs)

    def _direction(
        self, gradient: tf.Tensor, variable: tf.Variable, is_finite: tf.Tensor
    ) -> tf.Tensor:
        factor = tf.constant(self.factors[self._index_dict[self._var_key(variable)]])
        update = super()._direction(gradient, variable, is_finite)
        if self.bias_correction:  # for m / sqrt(v) alone
            step = tf.cast(self.iterations + 1, tf.float32)
            correction = tf.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)
            decay = 0.0 if self.is_excluded(variable) else self.weight_decay_rate * variable
            update = correction * (update - decay) + decay
        return factor * update

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        arguments = {"factors": self.factors, "bias_correction": self.bias_correction}
        return super().get_config() | arguments
