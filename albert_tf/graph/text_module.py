"""The base class of exports that take texts or pairs of texts."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from albert_tf.graph.buckets import run_in_buckets
from albert_tf.graph.signatures import (
    IDS,
    Answer,
    checked_inputs,
    require_same_size,
    signature,
    untracked,
)
from albert_tf.graph.windows import equal_parts, pool
from albert_tf.models.encoder import INPUTS, AlbertEncoder
from albert_tf.runtime.errors import InputError
from albert_tf.text.graph_tokenizer import GraphTokenizer
from albert_tf.text.ragged import slice_rows
from albert_tf.text.tokenizer import Tokenizer


class TextModule(tf.Module):
    """A module that returns an answer for each of B texts of at most S pieces.

    Signatures:
      serving_default: `text` string [B], or for pairs `text_a` and `text_b`.
      tokens: the encoder's inputs, int32 [B, S].
      depth_K, for each K in `depths`: like serving_default, with only the encoder's first K layers.

    Args:
      encoder: the encoder that `predict` applies.
      tokenizer: the model's tokenizer.
      seq_length: maximum pieces of a text or pair, including special ones; longer ones are
        truncated.
      pair: True for pairs of texts.
      shape: shape of `predict`'s output for one row.
      depths: the K of the signatures depth_K.
      name: the module's name.
      long_texts: as `task.long_texts`.

    Raises:
      InputError: a depth is not positive or not below the number of layers.
    """

    def __init__(
        self,
        encoder: AlbertEncoder,
        tokenizer: Tokenizer,
        seq_length: int,
        pair: bool,
        shape: Sequence[int],
        depths: Sequence[int],
        name: str,
        long_texts: str = "cut",
    ) -> None:
        super().__init__(name=name)
        if depths and encoder.config.num_layers == 1:
            raise InputError("--depths needs a model of at least 2 layers. Received: 1 layer.")
        if wrong := [k for k in depths if not 0 < k < encoder.config.num_layers]:
            raise InputError(
                f"--depths must be between 1 and {encoder.config.num_layers - 1}, the model's "
                f"number of layers minus one. Received: {wrong[0]}."
            )
        self._encode, self._max_positions = untracked(encoder), encoder.config.max_positions
        self._tokenizer = GraphTokenizer(tokenizer)
        self._seq_length, self._shape, self._depths = seq_length, shape, depths
        self._long_texts = long_texts
        self.text_names = ("text_a", "text_b") if pair else ("text",)

    def predict(self, inputs: Mapping[str, tf.Tensor], depth: int | None) -> tf.Tensor:
        """Return float32 [n, ...] for inputs int32 [n, S], using `depth` layers, or all if None."""
        raise NotImplementedError

    def pooled_output(self, inputs: Mapping[str, tf.Tensor], depth: int | None) -> tf.Tensor:
        """Return the encoder's pooled output, float32 [n, H], using `depth` layers."""
        return self._encode(inputs, num_layers=depth, pooled_only=True)["pooled_output"]

    def answer(self, values: tf.Tensor) -> Answer:
        """Return the signature's outputs for `predict`'s values of all texts."""
        raise NotImplementedError

    def signatures(self) -> dict[str, object]:
        """Return the signatures that the class describes."""
        texts = [tf.TensorSpec([None], tf.string, name) for name in self.text_names]
        depths = {"serving_default": None} | {f"depth_{depth}": depth for depth in self._depths}
        return {
            name: signature(functools.partial(self.serve, depth=depth), texts)
            for name, depth in depths.items()
        } | {"tokens": signature(self._tokens, [IDS[name] for name in INPUTS])}

    def serve(self, *texts: tf.Tensor, depth: int | None = None) -> Answer:
        """Return the answers for strings [B]."""

        def predict(inputs: dict[str, tf.Tensor]) -> Answer:
            return {"values": self.predict(inputs, depth)}

        if self._long_texts != "cut":
            return self.answer(self._in_windows(texts[0], predict))
        empty = {"values": tf.zeros([tf.size(texts[0]), *self._shape])}
        return self.answer(self.run_in_buckets(texts, predict, empty)["values"])

    def pool(self, values: tf.Tensor, text: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        """Return `predict`'s values of `count` texts from those of their windows, [W, ...].

        `text`, int32 [W], is the text of each window.
        """
        return pool(values, text, count, self._long_texts)

    def _in_windows(
        self, text: tf.Tensor, predict: Callable[[dict[str, tf.Tensor]], Answer]
    ) -> tf.Tensor:
        """Return the pooled values of texts [B], split as by `features.split_windows`."""
        ids = self._tokenizer(text)
        row, begin, end = equal_parts("text", ids.row_lengths(), self._seq_length - 2)
        first = tf.gather(ids.row_starts(), row) + begin

        def run(rows: tf.Tensor, width: tf.Tensor) -> Answer:
            part = slice_rows(ids, tf.gather(first, rows), tf.gather(end - begin, rows))
            return predict(self._tokenizer.pack([part], width))

        lengths = tf.cast(end - begin, tf.int32) + 2
        empty = {"values": tf.zeros([tf.size(row), *self._shape])}
        values = run_in_buckets(lengths, run, empty, self._seq_length)["values"]
        return self.pool(values, row, tf.size(text))

    def run_in_buckets(
        self,
        texts: Sequence[tf.Tensor],
        predict: Callable[[dict[str, tf.Tensor]], Answer],
        outputs: Mapping[str, tf.Tensor],
    ) -> Answer:
        """Return `predict`'s outputs for strings [B], each computed at its own width.

        Args:
          texts: string [B] for each name in `text_names`.
          predict: the encoder's inputs for some rows -> outputs by name.
          outputs: zeros [B, ...], to fill with `predict`'s outputs.
        """
        texts = require_same_size(dict(zip(self.text_names, texts, strict=True)))
        segments = [self._tokenizer(text) for text in texts]
        pieces = tf.add_n([tf.cast(segment.row_lengths(), tf.int32) for segment in segments])
        lengths = tf.minimum(pieces + len(segments) + 1, self._seq_length)

        def run(rows: tf.Tensor, width: tf.Tensor) -> Answer:
            batch = [tf.gather(segment, rows) for segment in segments]
            return predict(self._tokenizer.pack(batch, width))

        return run_in_buckets(lengths, run, outputs, self._seq_length)

    def _tokens(self, *ids: tf.Tensor) -> Answer:
        return self.answer(self.predict(checked_inputs(ids, self._max_positions), None))


def classify_signature(module: TextModule, labels: tf.Tensor) -> Any:
    """Return the signature of TF Serving's classification API, which takes tf.Examples.

    Args:
      module: a module whose answers have `probabilities` [B, C].
      labels: the names of the labels, string [C].
    """

    def classify(inputs: tf.Tensor) -> Answer:
        features = {name: tf.io.FixedLenFeature([], tf.string) for name in module.text_names}
        texts = tf.io.parse_example(inputs, features)
        scores = module.serve(*(texts[name] for name in module.text_names))["probabilities"]
        return {"classes": tf.broadcast_to(labels, tf.shape(scores)), "scores": scores}

    return signature(classify, [tf.TensorSpec([None], tf.string, "inputs")])
