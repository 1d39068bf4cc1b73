"""The parts of a fine-tuning run that `train` and `distill` share, from start to result."""
