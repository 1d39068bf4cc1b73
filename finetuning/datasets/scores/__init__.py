"""Metrics, as the official scorers compute them."""
