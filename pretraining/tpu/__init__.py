"""Ahead-of-time compilation of a training step for a TPU."""
