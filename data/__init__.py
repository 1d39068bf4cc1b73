"""Text -> TFRecord -> tf.data batches: both ends of one file format."""
