"""The learning-rate schedule of BERT and ALBERT."""

import tensorflow as tf
import tf_keras

from albert_tf.runtime.errors import ConfigError


@tf_keras.saving.register_keras_serializable("albert_tf")
class LinearWarmupLinearDecay(tf_keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate with linear warm-up to `peak` and linear decay to 0.

    The rate is peak * step / warmup_steps during warm-up, then peak * (1 - step / decay_steps). The
    decay uses the absolute step, as in google-research/albert: at the end of the warm-up, the rate
    drops from peak to peak * (1 - warmup_steps / decay_steps). Step 0 has rate 0 if there is a
    warm-up. With `constant_steps`, the rate after warm-up stays at the peak until that step, then
    decays to 0.

    Args:
      peak: the learning rate at the end of the warm-up.
      warmup_steps: number of warm-up steps, 0 for none.
      decay_steps: the step at which the rate reaches 0.
      constant_steps: the step at which the decay begins.

    Raises:
      ConfigError: `warmup_steps` or `constant_steps` does not fit `decay_steps`.
    """

    def __init__(
        self, peak: float, warmup_steps: int, decay_steps: int, constant_steps: int = 0
    ) -> None:
        if not 0 <= warmup_steps <= decay_steps or decay_steps < 1:
            raise ConfigError(
                "`warmup_steps` must be between 0 and `decay_steps`, which must be at least 1. "
                f"Received: warmup_steps={warmup_steps}, decay_steps={decay_steps}."
            )
        if not 0 <= constant_steps < decay_steps:
            raise ConfigError(
                "`constant_steps` must be at least 0 and less than `decay_steps`. "
                f"Received: constant_steps={constant_steps}, decay_steps={decay_steps}."
            )
        self.peak, self.warmup_steps, self.decay_steps = peak, warmup_steps, decay_steps
        self.constant_steps = constant_steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Return the learning rate at `step`, float32."""
        step = tf.cast(step, tf.float32)
        warmup = step / max(1, self.warmup_steps)
        decaying = tf.maximum(0.0, step - self.constant_steps)
        decay = tf.maximum(0.0, 1.0 - decaying / (self.decay_steps - self.constant_steps))
        return self.peak * tf.where(step < self.warmup_steps, warmup, decay)

    def get_config(self) -> dict[str, float | int]:
        """Return the arguments of the constructor."""
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "decay_steps": self.decay_steps,
            "constant_steps": self.constant_steps,
        }
