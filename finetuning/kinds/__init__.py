"""What fine-tuning knows of each kind of task."""
