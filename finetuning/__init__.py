"""Fine-tuning on labelled data with plain tf_keras."""
