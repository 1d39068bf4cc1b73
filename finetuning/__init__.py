"""Fine-tuning on labeled data with plain tf_keras."""

from albert_tf.runtime import commands  # noqa: F401  first: it silences TensorFlow's start-up notes
