"""Folders of Hugging Face's transformers, both directions."""
