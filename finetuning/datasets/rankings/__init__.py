"""Queries with candidates of known relevance."""
