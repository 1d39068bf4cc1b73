"""LAMB, AdamW and the learning-rate schedule of ALBERT's authors."""

from albert_tf.optimization.adamw import AdamW
from albert_tf.optimization.lamb import Lamb
from albert_tf.optimization.schedules import LinearWarmupLinearDecay

OPTIMIZERS = {"lamb": Lamb, "adamw": AdamW}

__all__ = ["OPTIMIZERS", "AdamW", "Lamb", "LinearWarmupLinearDecay"]
