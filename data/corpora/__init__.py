"""Readers of each kind of corpus, sentences, splits."""
