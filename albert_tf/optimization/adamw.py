"""Adam with decoupled weight decay, as in google-research/albert."""

import re
from typing import Any

import tensorflow as tf
import tf_keras

# Match only the names of the variable and its layer, since a model may have any name.
EXCLUDED = (r"(layer_norm|LayerNorm)[^/]*/[^/]*$", r"bias[^/]*$")


@tf_keras.saving.register_keras_serializable("albert_tf")
class AdamW(tf_keras.optimizers.Optimizer):
    """Adam with decoupled weight decay and without bias correction.

    update = m / (sqrt(v) + eps) + decay * w; w -= lr * update. Variables whose name matches one of
    `exclude` are not decayed. The caller clips gradients. A gradient with a non-finite value
    changes neither the variable nor m and v.

    Args:
      learning_rate: number or schedule.
      weight_decay_rate: decay added to the update, not to the gradient.
      beta_1: decay rate of m.
      beta_2: decay rate of v.
      epsilon: the eps above.
      exclude: regular expressions to search for in the variables' names.
      name: the optimizer's name.
      kwargs: passed to `tf_keras.optimizers.Optimizer`, whose own weight decay is not supported.

    Raises:
      ValueError: `weight_decay` is passed.
    """

    def __init__(
        self,
        learning_rate: float | tf_keras.optimizers.schedules.LearningRateSchedule,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        exclude: tuple[str, ...] = EXCLUDED,
        name: str = "AdamW",
        **kwargs: Any,
    ) -> None:
        if "weight_decay" in kwargs:
            raise ValueError(
                "`weight_decay` would decay all variables once more. Pass `weight_decay_rate`, "
                "which spares those of `exclude`."
            )
        if isinstance(exclude, str):
            raise ValueError(f"`exclude` must be a list of patterns. Received: {exclude!r}.")
        # By default, tf_keras compiles each variable's update as an XLA program on a GPU.
        super().__init__(name=name, **{"jit_compile": False} | kwargs)
        self._learning_rate = self._build_learning_rate(learning_rate)
        self.weight_decay_rate = weight_decay_rate
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.exclude = tuple(exclude)

    def build(self, var_list: list[tf.Variable]) -> None:
        """Create m and v of each variable; a second call does nothing."""
        # `apply_gradients` calls this again with its variables, which may be a part of the model.
        if getattr(self, "_built", False):
            return
        super().build(var_list)
        self._m = [self.add_variable_from_reference(v, "m") for v in var_list]
        self._v = [
            self.add_variable_from_reference(v, "v") if self.has_v(v) else None for v in var_list
        ]
        self._built = True

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        """Update one variable, unless its gradient has a non-finite value."""
        gradient = tf.convert_to_tensor(gradient)
        is_finite = tf.reduce_all(tf.math.is_finite(gradient))
        # Mask the factors: selecting between old and new values would read them all once more.
        update = self._direction(tf.where(is_finite, gradient, 0.0), variable, is_finite)
        rate = tf.where(is_finite, tf.cast(self.learning_rate, variable.dtype), 0.0)
        variable.assign_sub(rate * update)

    def _direction(
        self, gradient: tf.Tensor, variable: tf.Variable, is_finite: tf.Tensor
    ) -> tf.Tensor:
        index = self._index_dict[self._var_key(variable)]
        m, v = self._m[index], self._v[index]
        beta_1, beta_2 = (tf.where(is_finite, beta, 1.0) for beta in (self.beta_1, self.beta_2))
        m.assign(beta_1 * m + (1 - self.beta_1) * gradient)
        v.assign(beta_2 * v + (1 - self.beta_2) * tf.square(gradient))
        update = m / (tf.sqrt(v) + self.epsilon)
        if self.is_excluded(variable):
            return update
        return update + self.weight_decay_rate * variable

    def is_excluded(self, variable: tf.Variable) -> bool:
        """Return True if the variable gets no weight decay (and, in LAMB, no trust ratio)."""
        return any(re.search(pattern, self.name_of(variable)) for pattern in self.exclude)

    def has_v(self, variable: tf.Variable) -> bool:
        """Return True if the update of a variable depends on v."""
        return True

    @staticmethod
    def name_of(variable: tf.Variable) -> str:
        """Return the name of a variable, also of its copy on a replica."""
        return re.sub(r"/replica_\d+", "", variable.name)

    def get_config(self) -> dict[str, object]:
        """Return the arguments of the constructor."""
        config = super().get_config()
        del config["weight_decay"]
        return config | {
            "learning_rate": self._serialize_hyperparameter(self._learning_rate),
            "weight_decay_rate": self.weight_decay_rate,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "exclude": self.exclude,
        }
