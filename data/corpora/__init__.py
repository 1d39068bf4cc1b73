"""Corpus readers, sentence splitting, and the split into training and held-out documents."""
