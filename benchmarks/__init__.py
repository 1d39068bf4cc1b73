"""Measurements, one JSON line each; speed is reported side by side and never asserted."""

from albert_tf.runtime import commands  # noqa: F401  before TensorFlow, whose start-up notes it silences
