"""Sections of a model card about predictions."""
