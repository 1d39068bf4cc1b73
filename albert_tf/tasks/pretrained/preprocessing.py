"""Text preprocessing as a SavedModel: text in, the encoder's inputs out.

It follows TF Hub's contract: https://www.tensorflow.org/hub/common_saved_model_apis/text. Shapes: B
texts, S `seq_length`.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from albert_tf.models.checkpoints import load_config
from albert_tf.models.config import AlbertConfig
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.kind import Export, ExportSettings
from albert_tf.text.graph_aligner import GraphAligner, byte_bounds
from albert_tf.text.graph_tokenizer import GraphTokenizer
from albert_tf.text.ragged import row_of
from albert_tf.text.tokenizer import Tokenizer

_TEXTS = tf.TensorSpec([None], tf.string, name="text")
_MAX_SEGMENTS, _MAX_RAGGED_RANK = 2, 2


class PreprocessingModule(tf.Module):
    """Conversion of text to `input_word_ids`, `input_mask` and `input_type_ids`.

    It runs in one call or in two steps, tokenizing and packing. After `hub.load` (or in
    `hub.KerasLayer`) it has
      `module(texts)`: string [B] -> dict of int32 [B, S];
      `module.tokenize(texts)`: string [B] -> ragged int32 [B, (pieces)];
      `module.tokenize_with_offsets(texts)` -> these ids, and the bytes [start, limit) of the text
        for each id, as two ragged int32 of the same shape;
      `module.bert_pack_inputs([ids] or [ids_a, ids_b], seq_length=S)` -> dict of int32 [B, S];
      `module.get_special_tokens_dict()`, also as `module.tokenize.get_special_tokens_dict()`.

    Args:
      tokenizer: the model's tokenizer.
      seq_length: S of the single call, and the default for `bert_pack_inputs`.

    Raises:
      InputError: `seq_length` is too short for [CLS] A [SEP] B [SEP] with one piece each.
    """

    def __init__(self, tokenizer: Tokenizer, seq_length: int) -> None:
        super().__init__(name="preprocessing")
        if seq_length < 5:
            raise InputError(
                f"`seq_length` must be at least 5, to fit a pair and its special pieces. "
                f"Received: {seq_length}."
            )
        graph = GraphTokenizer(tokenizer)
        self.get_special_tokens_dict = _special_tokens_function(tokenizer)
        self.tokenize = _Tokenize(graph, self.get_special_tokens_dict)
        self.tokenize_with_offsets = _TokenizeWithOffsets(
            tokenizer, graph, self.get_special_tokens_dict
        )
        self.bert_pack_inputs = _Pack(graph, seq_length)
        self._graph, self._seq_length = graph, seq_length

    @tf.function(input_signature=[_TEXTS], autograph=False)
    def __call__(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Tokenize and pack strings [B] into the model's inputs, int32 [B, S] each."""
        return self._graph.pack([self._graph(texts)], self._seq_length)

    def signatures(self) -> dict[str, Any]:
        """Return `serving_default`: `text` string [B] -> dict of int32 [B, S]."""
        serve = tf.function(lambda text: self(text), input_signature=[_TEXTS])
        return {"serving_default": serve}


class _Tokenize(tf.Module):
    def __init__(self, graph: GraphTokenizer, special_tokens: Any) -> None:
        super().__init__(name="tokenize")
        self._graph = graph
        self.get_special_tokens_dict = special_tokens

    @tf.function(input_signature=[_TEXTS], autograph=False)
    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self._graph(texts)


class _TokenizeWithOffsets(tf.Module):
    """Tokenization with byte offsets.

    Spaces belong to no piece, so start = limit for a piece that is only a space.
    """

    def __init__(self, tokenizer: Tokenizer, graph: GraphTokenizer, special_tokens: Any) -> None:
        super().__init__(name="tokenize_with_offsets")
        self._align = GraphAligner(tokenizer, graph)
        self.get_special_tokens_dict = special_tokens

    @tf.function(input_signature=[_TEXTS], autograph=False)
    def __call__(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        pieces = self._align(texts)
        bounds = byte_bounds(texts)
        base = tf.gather(tf.cast(bounds.row_starts(), tf.int32), row_of(pieces.ids))
        starts, limits = (
            pieces.ids.with_values(tf.gather(bounds.values, base + index))
            for index in (pieces.first, pieces.last + 1)
        )
        return pieces.ids, starts, limits


class _Pack(tf.Module):
    """Packing, traced for each input of the contract: 1 or 2 segments, of pieces or of words.

    Words are ragged lists of pieces. `seq_length` is a tensor, so callers can change it after
    loading.
    """

    def __init__(self, graph: GraphTokenizer, seq_length: int) -> None:
        super().__init__(name="bert_pack_inputs")

        # Defined here because the default must be part of the function's signature.
        @tf.function(autograph=False)
        def pack(
            inputs: tf.RaggedTensor | Sequence[tf.RaggedTensor],
            seq_length: int | tf.Tensor = seq_length,
        ) -> dict[str, tf.Tensor]:
            parts: Any = inputs if isinstance(inputs, list | tuple) else [inputs]
            flat = [part.merge_dims(1, -1) if part.shape.rank > 2 else part for part in parts]
            return graph.pack(flat, seq_length)

        self._graph = graph
        self.__call__ = pack
        length = tf.TensorSpec([], tf.int32, name="seq_length")
        for ragged_rank in range(1, _MAX_RAGGED_RANK + 1):
            spec = tf.RaggedTensorSpec([None] * (ragged_rank + 1), tf.int32)
            for num_segments in range(1, _MAX_SEGMENTS + 1):
                pack.get_concrete_function([spec] * num_segments, seq_length=length)


def _special_tokens_function(tokenizer: Tokenizer) -> Any:
    ids = tokenizer.special
    values = {
        "vocab_size": tokenizer.vocab_size,
        "padding_id": ids.pad,
        "start_of_sequence_id": ids.cls,
        "end_of_segment_id": ids.sep,
        "mask_id": ids.mask,
    }
    return tf.function(lambda: {k: tf.constant(v) for k, v in values.items()}, input_signature=[])


class Preprocessing(Export):
    """The tokenizer by TF Hub's contract; it has no model."""

    name = "preprocessing"
    options = ()
    has_tokens = has_onnx = False
    may_use_constants = False

    def load(self, path: str, unroll: bool = True) -> AlbertConfig:
        """Load the configuration of the model."""
        return load_config(path)

    def module(
        self, model: AlbertConfig, tokenizer: Tokenizer, values: ExportSettings
    ) -> PreprocessingModule:
        """Return the module to save."""
        return PreprocessingModule(tokenizer, model.max_positions)
