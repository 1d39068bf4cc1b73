"""What every training shares: loading checkpoints, progress."""
