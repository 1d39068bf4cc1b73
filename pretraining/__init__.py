"""Pretraining with a custom training loop."""

# Imported before TensorFlow to silence its start-up messages.
from albert_tf.runtime import commands  # noqa: F401
