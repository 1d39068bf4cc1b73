"""Held-out metrics of the pretraining heads and of probes on frozen outputs."""
