"""Hugging Face's TensorFlow classes (transformers before version 5) and AdamWeightDecay."""

import tensorflow as tf
import tf_keras
from transformers import AdamWeightDecay, AlbertConfig, TFAlbertForPreTraining

from benchmarks.systems import CLIP_NORM, LEARNING_RATE, WEIGHT_DECAY, Step
from benchmarks.systems.hf_config import hf_config
from benchmarks.systems.tf_losses import pretraining_loss
from benchmarks.workloads import Workload, batch_of


def albert(workload: Workload, precision: str, jit: bool) -> Step:
    """Build the step from the modules of TFAlbertForPreTraining.

    Its own call would score every position.
    """
    tf_keras.mixed_precision.set_global_policy(precision)
    model = TFAlbertForPreTraining(AlbertConfig(**hf_config(workload)))
    model.build()
    optimizer = AdamWeightDecay(
        LEARNING_RATE,
        epsilon=1e-6,
        weight_decay_rate=WEIGHT_DECAY,
        exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"],
    )
    batch = {name: tf.constant(value) for name, value in batch_of(workload).items()}

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            sequence, pooled = model.albert(
                input_ids=batch["input_word_ids"],
                attention_mask=batch["input_mask"],
                token_type_ids=batch["input_type_ids"],
                training=True,
            )[:2]
            chosen = tf.gather(sequence, batch["masked_lm_positions"], batch_dims=1)  # [B, P, H]
            mlm_logits = model.predictions(hidden_states=chosen)
            pair_logits = model.sop_classifier(pooled_output=pooled, training=True)
            loss = pretraining_loss(mlm_logits, pair_logits, batch)
        variables = model.trainable_variables
        pairs = [
            (tf.convert_to_tensor(gradient), variable)
            for gradient, variable in zip(tape.gradient(loss, variables), variables, strict=True)
            if gradient is not None  # the MLM head's second, unused bias
        ]
        gradients, _ = tf.clip_by_global_norm([gradient for gradient, _ in pairs], CLIP_NORM)
        optimizer.apply_gradients(zip(gradients, [v for _, v in pairs], strict=True))
        return loss

    return lambda: float(step())
