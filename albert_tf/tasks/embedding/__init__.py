"""Embeddings: a normalized vector for each text, whose cosines say how alike texts are."""
