"""Benchmarks that print JSON lines; they report speeds side by side and never assert them."""

from albert_tf.runtime import commands  # noqa: F401  before TensorFlow, to silence its log
