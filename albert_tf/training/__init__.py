"""Common parts of all training: checkpoints, best weights, metrics, batch parts, progress."""
