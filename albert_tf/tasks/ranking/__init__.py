"""Ranking: candidates in the order in which they answer a query (a cross-encoder)."""
