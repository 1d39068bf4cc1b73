"""From records to batches: the stream of an epoch, pairs, masks, mixtures."""
