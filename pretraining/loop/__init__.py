"""The custom training loop."""
