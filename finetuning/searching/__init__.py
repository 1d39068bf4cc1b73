"""Search of the passages of a corpus by their words and by their vectors."""
