"""Sentence embeddings as SavedModels: text in, vector out."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from albert_tf.graph.text_module import Answer, TextModule
from albert_tf.models.encoder import AlbertEncoder
from albert_tf.text.tokenizer import Tokenizer

POOLINGS = ("mean", "cls")


class EmbeddingModule(TextModule):
    """A module that returns a vector for each text.

    Signatures: those of `TextModule`, which return `embedding` float32 [B, H].

    Args:
      encoder: the trained encoder.
      tokenizer: the encoder's tokenizer.
      pooling: mean, the mean of the last layer over the text's pieces, including special ones; or
        cls, the encoder's pooled output.
      depths: see `TextModule`.
    """

    def __init__(
        self,
        encoder: AlbertEncoder,
        tokenizer: Tokenizer,
        pooling: str = "mean",
        depths: Sequence[int] = (),
    ) -> None:
        config, shape = encoder.config, [encoder.config.hidden_size]
        super().__init__(
            encoder, tokenizer, config.max_positions, False, shape, depths, name="embedding"
        )
        assert pooling in POOLINGS, pooling
        self._weights, self._pooling = encoder.variables, pooling

    def predict(self, inputs: Mapping[str, tf.Tensor], depth: int | None) -> tf.Tensor:
        """Return the embeddings, float32 [n, H], using `depth` layers, or all if None."""
        if self._pooling == "cls":
            return self.pooled_output(inputs, depth)
        outputs = self._encode(inputs, num_layers=depth)
        mask = tf.expand_dims(tf.cast(inputs["input_mask"], tf.float32), 2)  # [n, S, 1]
        total = tf.reduce_sum(mask * outputs["sequence_output"], axis=1)
        return total / tf.maximum(tf.reduce_sum(mask, axis=1), 1.0)

    def answer(self, values: tf.Tensor) -> Answer:
        """Return the signature's output for embeddings [B, H]."""
        return {"embedding": values}
