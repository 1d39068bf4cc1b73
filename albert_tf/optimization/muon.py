"""Muon for the matrices of the layers, AdamW for everything else."""

import re
from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.optimization.adamw import AdamW

MATRICES = r"stack/[^/]+/[^/]+/kernel[^/]*$"
# Of a quintic Newton-Schulz iteration that is steep at 0. It brings singular values above 0.0052 of
# the Frobenius norm to between 0.68 and 1.14, but does not converge to 1.
_COEFFICIENTS, _ITERATIONS = (3.4445, -4.7750, 2.0315), 5


@tf_keras.saving.register_keras_serializable("albert_tf")
class Muon(AdamW):
    """Muon (K. Jordan, 2024) with the weight decay and the scale of arXiv 2502.16982, equation 4.

    For a matrix [A, B] in the layers of an encoder, m = mu * m + g and
    update = 0.2 * sqrt(max(A, B)) * O(g + mu * m) + decay * w, where O(U S V^T) is about U V^T: all
    directions of the momentum get equal steps. The factor makes their root mean square about that
    of AdamW, whose learning rate therefore fits. All other variables, such as embeddings, heads,
    biases and LayerNorms, are AdamW's.

    Args:
      args: arguments of `AdamW`.
      momentum: the mu above.
      matrices: a regular expression to search for in the names of the variables.
      name: the optimizer's name.
      kwargs: arguments of `AdamW`.
    """

    def __init__(
        self,
        *args: Any,
        momentum: float = 0.95,
        matrices: str = MATRICES,
        name: str = "Muon",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, name=name, **kwargs)
        self.momentum, self.matrices = momentum, matrices

    def has_v(self, variable: tf.Variable) -> bool:
        """Return False for the matrices."""
        return len(variable.shape) != 2 or not re.search(self.matrices, self.name_of(variable))

    def _direction(
        self, gradient: tf.Tensor, variable: tf.Variable, is_finite: tf.Tensor
    ) -> tf.Tensor:
        if self.has_v(variable):
            return super()._direction(gradient, variable, is_finite)
        m = self._m[self._index_dict[self._var_key(variable)]]
        m.assign(tf.where(is_finite, self.momentum, 1.0) * m + gradient)
        update = orthogonal(gradient + self.momentum * m) * (0.2 * max(variable.shape) ** 0.5)
        decay = 0.0 if self.is_excluded(variable) else self.weight_decay_rate
        return update + decay * variable

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        return super().get_config() | {"momentum": self.momentum, "matrices": self.matrices}


def orthogonal(matrix: tf.Tensor) -> tf.Tensor:
    """Return about U V^T of a matrix U S V^T, float32 [A, B]; 0 of 0."""
    a, b, c = _COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = tf.transpose(matrix) if is_tall else matrix
    x = tf.math.divide_no_nan(x, tf.norm(x))  # no singular value exceeds 1
    for _ in range(_ITERATIONS):
        square = tf.matmul(x, x, transpose_b=True)
        x = a * x + tf.matmul(b * square + c * tf.matmul(square, square), x)
    return tf.transpose(x) if is_tall else x
