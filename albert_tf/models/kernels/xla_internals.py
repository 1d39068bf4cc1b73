"""Private TensorFlow calls without a public equivalent: two operations that only XLA has.

XLA compiles them, also outside its programs. Checked with tensorflow 2.20.
"""

from collections.abc import Sequence

import tensorflow as tf


def dot(a: tf.Tensor, b: tf.Tensor, summed: Sequence, batch: Sequence) -> tf.Tensor:
    """Return the product of `a` and `b` in float32, whatever their dtype.

    Args:
      a: the left factor.
      b: the right factor, of the dtype of `a`.
      summed: the axes of `a` and those of `b` that are summed over.
      batch: the axes of `a` and those of `b` that are batch axes.

    Returns:
      The batch axes, then the other axes of `a`, then those of `b`.
    """
    from tensorflow.compiler.tf2xla.python import xla

    numbers = xla.DotDimensionNumbers()
    numbers.lhs_contracting_dimensions.extend(summed[0])
    numbers.rhs_contracting_dimensions.extend(summed[1])
    numbers.lhs_batch_dimensions.extend(batch[0])
    numbers.rhs_batch_dimensions.extend(batch[1])
    return xla.dot_general(a, b, numbers, preferred_element_type=tf.float32)


def barrier(*tensors: tf.Tensor) -> Sequence[tf.Tensor]:
    """Return the same tensors; the compiler treats them as new ones."""
    from tensorflow.compiler.tf2xla.python import xla

    return xla.optimization_barrier(*tensors)
