"""Baselines without an encoder, by scikit-learn."""
