"""Pretraining by a custom loop."""
