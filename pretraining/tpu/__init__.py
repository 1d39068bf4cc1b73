"""A training step compiled ahead of time for a TPU."""
