"""Vocabularies: the sample of sentences to train on, and extensions."""
