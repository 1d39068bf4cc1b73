"""Pretraining by a custom loop."""

from albert_tf.runtime import commands  # noqa: F401  before TensorFlow, whose start-up notes it silences
