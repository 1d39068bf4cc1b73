"""The floating-point operations of a training step: those of its matrix products."""

from albert_tf.models.config import AlbertConfig

_BACKWARD = 2  # times the forward pass: one product for the input's gradient, one for the weight's


def step_flops(
    model: AlbertConfig, batch_size: int, seq_length: int, num_predictions: int
) -> float:
    """Return the model FLOPs of a forward and backward pass; a multiply-add counts as two.

    Recomputed activations do not count. Every position counts, padding included.
    """
    hidden, layers = model.hidden_size, model.num_layers
    inner = model.inner_size * (2 if model.ffn == "plain" else 3)
    products = 4 * hidden**2 + hidden * inner + 2 * seq_length * hidden
    factorized = model.embedding_size if model.embedding_size != hidden else 0
    piece = layers * products + factorized * hidden
    prediction = hidden * model.embedding_size + model.embedding_size * model.vocab_size
    pair = hidden**2 + 2 * hidden
    forward = 2 * (seq_length * piece + num_predictions * prediction + pair)
    return float((1 + _BACKWARD) * batch_size * forward)
