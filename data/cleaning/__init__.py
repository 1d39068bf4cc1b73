"""Cleaning of corpora: filters of lines, paragraphs and documents, and duplicates."""
