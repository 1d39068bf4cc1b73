"""The learning-rate schedule of BERT and ALBERT."""

import tensorflow as tf
import tf_keras

from albert_tf.runtime.errors import ConfigError


@tf_keras.saving.register_keras_serializable("albert_tf")
class LinearWarmupLinearDecay(tf_keras.optimizers.schedules.LearningRateSchedule):
    """peak * step / warmup_steps during warm-up, then peak * (1 - step / decay_steps).

    The decay runs on the absolute step, as in google-research/albert: at the end of the warm-up the
    rate drops from peak to peak * (1 - warmup_steps / decay_steps). Step 0 has rate 0. With
    `constant_steps` the decay begins there, and the rate is the peak until then.

    Args:
      peak: the learning rate that the warm-up climbs to.
      warmup_steps: 0 for none.
      decay_steps: the step at which the rate reaches 0.
      constant_steps: the step at which the decay begins.
    """

    def __init__(
        self, peak: float, warmup_steps: int, decay_steps: int, constant_steps: int = 0
    ) -> None:
        if not 0 <= warmup_steps <= decay_steps or decay_steps < 1:
            raise ConfigError(
                "`warmup_steps` must not exceed the schedule's length. "
                f"Received: warmup_steps={warmup_steps}, decay_steps={decay_steps}."
            )
        if not 0 <= constant_steps < decay_steps:
            raise ConfigError(
                "`constant_steps` must be less than the schedule's length. "
                f"Received: constant_steps={constant_steps}, decay_steps={decay_steps}."
            )
        self.peak, self.warmup_steps, self.decay_steps = peak, warmup_steps, decay_steps
        self.constant_steps = constant_steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        step = tf.cast(step, tf.float32)
        warmup = step / max(1, self.warmup_steps)
        decaying = tf.maximum(0.0, step - self.constant_steps)
        decay = tf.maximum(0.0, 1.0 - decaying / (self.decay_steps - self.constant_steps))
        return self.peak * tf.where(step < self.warmup_steps, warmup, decay)

    def get_config(self) -> dict[str, float | int]:
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "decay_steps": self.decay_steps,
            "constant_steps": self.constant_steps,
        }
