"""keras-hub's AlbertMaskedLM with Keras's own training step; it has no sentence-order loss."""

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")  # before Keras is imported

import keras_hub

from benchmarks.systems import CLIP_NORM, LEARNING_RATE, WEIGHT_DECAY, Step
from benchmarks.workloads import Workload, batch_of


def albert(workload: Workload, precision: str, jit: bool) -> Step:
    """Build the step of the backbone and MLM head, compiled as Keras does by default."""
    config, batch = workload.model, batch_of(workload)
    backbone = keras_hub.models.AlbertBackbone(
        vocabulary_size=config.vocab_size,
        embedding_dim=config.embedding_size,
        hidden_dim=config.hidden_size,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        intermediate_dim=config.intermediate_size,
        max_sequence_length=config.max_positions,
        num_segments=config.type_vocab_size,
        dropout=0.0,
        dtype=precision,
    )
    model = keras_hub.models.AlbertMaskedLM(backbone)
    adamw = {
        "learning_rate": LEARNING_RATE,
        "epsilon": 1e-6,
        "weight_decay": WEIGHT_DECAY,
        "global_clipnorm": CLIP_NORM,
    }
    model.compile(optimizer={"class_name": "AdamW", "config": adamw}, weighted_metrics=[])
    inputs = {
        "token_ids": batch["input_word_ids"],
        "padding_mask": batch["input_mask"],
        "segment_ids": batch["input_type_ids"],
        "mask_positions": batch["masked_lm_positions"],
    }
    labels, weights = batch["masked_lm_ids"], batch["masked_lm_weights"]
    return lambda: float(model.train_on_batch(inputs, labels, sample_weight=weights))
