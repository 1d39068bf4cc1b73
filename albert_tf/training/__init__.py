"""What every training shares: checkpoints, best weights, metrics, parts of a batch, progress."""
