"""Pretraining by a custom loop."""

from albert_tf import cli  # noqa: F401  before TensorFlow, whose start-up notes it silences
