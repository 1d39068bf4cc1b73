"""What `train` and `distill` share: from where a run begins to its result."""
