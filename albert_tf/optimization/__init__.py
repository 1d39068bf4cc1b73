"""LAMB, AdamW, Muon and the learning-rate schedule of ALBERT's authors."""

from albert_tf.optimization.adamw import AdamW
from albert_tf.optimization.lamb import Lamb
from albert_tf.optimization.muon import Muon
from albert_tf.optimization.schedules import LinearWarmupLinearDecay

OPTIMIZERS = {"lamb": Lamb, "adamw": AdamW, "muon": Muon}

__all__ = ["OPTIMIZERS", "AdamW", "Lamb", "LinearWarmupLinearDecay", "Muon"]
