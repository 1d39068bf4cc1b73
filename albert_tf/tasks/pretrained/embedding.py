"""Sentence embeddings as SavedModels: text in, vector out."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.graph.onnx.encoder import EncoderGraph
from albert_tf.graph.onnx.graph import Outputs
from albert_tf.graph.signatures import Answer
from albert_tf.graph.text_module import TextModule
from albert_tf.models.encoder import AlbertEncoder, load_encoder
from albert_tf.tasks.kind import POOLINGS, Export, ExportSettings
from albert_tf.text.tokenizer import Tokenizer


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


class Embedding(Export):
    """A vector for each text, from the pretrained encoder."""

    name = "embedding"
    options = ("precision", "depths", "pooling")

    def load(self, path: str, unroll: bool = True) -> AlbertEncoder:
        """Load the encoder."""
        return load_encoder(path, unroll=unroll)

    def module(
        self, model: AlbertEncoder, tokenizer: Tokenizer, values: ExportSettings
    ) -> EmbeddingModule:
        """Return the module to save."""
        return EmbeddingModule(model, tokenizer, values.pooling, values.depths)

    def onnx_outputs(
        self, encoder: EncoderGraph, model: AlbertEncoder, values: ExportSettings
    ) -> Outputs:
        """Add `embedding`, float32 [B, H]."""
        graph, width = encoder.graph, encoder.config.hidden_size
        if values.pooling == "cls":
            return {"embedding": (encoder.pooled(), np.float32, ["B", width])}
        mask = graph.axes("Unsqueeze", graph.op("Cast", "input_mask", to=1), 2)
        total = graph.op("Mul", mask, encoder.sequence_output())
        total = graph.axes("ReduceSum", total, 1, keepdims=0)
        count = graph.axes("ReduceSum", mask, 1, keepdims=0)
        mean = graph.op("Div", total, graph.op("Max", count, graph.constant(1.0, np.float32)))
        return {"embedding": (mean, np.float32, ["B", width])}
