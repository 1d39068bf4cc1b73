"""Embeddings as SavedModels: text in, normalized vector out."""

import functools
from collections.abc import Mapping, Sequence

import tensorflow as tf

from albert_tf.graph.signatures import Answer, signature
from albert_tf.graph.text_module import TextModule
from albert_tf.models.layers.common import normalized
from albert_tf.tasks.embedding.model import EmbeddingModel
from albert_tf.text.tokenizer import Tokenizer


class EmbeddingModule(TextModule):
    """A module that returns a vector of length 1 for each text.

    Signatures: those of `TextModule`, which return `embedding` float32 [B, D]. If the model has
    prompts, also `query` and `passage`, which put the prompt before each text themselves.

    Args:
      model: the model.
      tokenizer: its tokenizer.
      depths: see `TextModule`.
    """

    def __init__(
        self, model: EmbeddingModel, tokenizer: Tokenizer, depths: Sequence[int] = ()
    ) -> None:
        task = model.task
        shape = [model.dimension]
        super().__init__(
            model.encoder, tokenizer, task.seq_length, False, shape, depths, name=task.kind
        )
        self._weights, self._pooling = model.variables, task.pooling
        self._projected = model.projected
        prompts = {"query": task.query_prompt, "passage": task.passage_prompt}
        self._prompts = prompts if any(prompts.values()) else {}

    def signatures(self) -> dict[str, object]:
        """Return the signatures that the class describes."""
        text = [tf.TensorSpec([None], tf.string, "text")]
        return super().signatures() | {
            name: signature(functools.partial(self._prompted, prompt=prompt), text)
            for name, prompt in self._prompts.items()
        }

    def _prompted(self, text: tf.Tensor, prompt: str) -> Answer:
        return self.serve(tf.strings.join([prompt, text]))

    def predict(self, inputs: Mapping[str, tf.Tensor], depth: int | None) -> tf.Tensor:
        """Return the vectors, float32 [n, D], using `depth` layers, or all if None."""
        if self._pooling == "cls":
            outputs = {"pooled_output": self.pooled_output(inputs, depth)}
        else:
            outputs = self._encode(inputs, num_layers=depth)
        return normalized(self._projected(outputs, inputs["input_mask"]))

    def answer(self, values: tf.Tensor) -> Answer:
        """Return the signature's output for vectors [B, D]."""
        return {"embedding": values}
