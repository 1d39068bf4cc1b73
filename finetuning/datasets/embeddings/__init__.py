"""Texts, pairs, scored pairs and searches for embeddings."""
