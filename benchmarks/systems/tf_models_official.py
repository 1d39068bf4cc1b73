"""The AlbertEncoder, MaskedLM layer and clipping AdamWeightDecay of tf-models-official."""

import tensorflow as tf
import tf_keras
from official.modeling.optimization.legacy_adamw import AdamWeightDecay
from official.nlp.modeling import layers, networks

from albert_tf.models.config import AlbertConfig
from benchmarks.systems import CLIP_NORM, LEARNING_RATE, WEIGHT_DECAY, Step
from benchmarks.systems.tf_losses import pretraining_loss
from benchmarks.workloads import Workload, batch_of


def albert(workload: Workload, precision: str, jit: bool) -> Step:
    """Build the step of the encoder with both heads, trained as in its masked-LM task."""
    tf_keras.mixed_precision.set_global_policy(precision)
    encoder = encoder_like(workload.model)
    mlm_head = layers.MaskedLM(
        encoder.get_embedding_table(), activation=lambda x: tf.nn.gelu(x, approximate=True)
    )
    pair_head = tf_keras.layers.Dense(2)
    parts = (encoder, mlm_head, pair_head)
    optimizer = AdamWeightDecay(
        LEARNING_RATE,
        epsilon=1e-6,
        weight_decay_rate=WEIGHT_DECAY,
        exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"],
        gradient_clip_norm=CLIP_NORM,
    )
    batch = {name: tf.constant(value) for name, value in batch_of(workload).items()}
    inputs = [batch[name] for name in ("input_word_ids", "input_mask", "input_type_ids")]

    @tf.function
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            outputs = encoder(inputs, training=True)
            mlm_logits = mlm_head(outputs["sequence_output"], batch["masked_lm_positions"])
            loss = pretraining_loss(mlm_logits, pair_head(outputs["pooled_output"]), batch)
        variables = [variable for part in parts for variable in part.trainable_variables]
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return lambda: float(step())


def encoder_like(config: AlbertConfig) -> networks.AlbertEncoder:
    """Return Model Garden's encoder of the same shape, without dropout."""
    return networks.AlbertEncoder(
        vocab_size=config.vocab_size,
        embedding_width=config.embedding_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        max_sequence_length=config.max_positions,
        type_vocab_size=config.type_vocab_size,
        intermediate_size=config.intermediate_size,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        dict_outputs=True,
    )
