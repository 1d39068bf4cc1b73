"""Held-out figures: of the heads, and of probes on frozen outputs."""
