"""Trained models to and from Google's TF1 checkpoints and Hugging Face's folders."""
