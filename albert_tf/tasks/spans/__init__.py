"""Spans: the part of a context that answers a question (SQuAD)."""
