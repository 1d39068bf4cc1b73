"""The data pipeline: from text to TFRecord files, and from TFRecord files to tf.data batches."""
