"""The data pipeline: from text to TFRecord files, and from TFRecord files to tf.data batches."""

import albert_tf  # noqa: F401  first: it refuses other versions of Python
