"""The small model of the library's tests."""

from tests.albert_tf.conftest import tiny  # noqa: F401
