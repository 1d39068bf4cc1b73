"""The input pipeline from records to batches: shuffled streams, pairs, masks and mixtures."""
