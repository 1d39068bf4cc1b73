"""What the exports that read texts, or pairs of texts, have in common."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from albert_tf.encoder import INPUTS
from albert_tf.export.buckets import in_buckets
from albert_tf.text_ops import GraphTokenizer
from albert_tf.tokenization import Tokenizer

IDS = {name: tf.TensorSpec([None, None], tf.int32, name) for name in INPUTS}
Answer = dict[str, tf.Tensor]


class TextModule(tf.Module):
    """Texts in, an answer for each out: B texts, S pieces at most.

    Signatures:
      serving_default: `text` string [B]; of a task of pairs `text_a` and `text_b`.
      tokens: the encoder's inputs, int32 [B, S].

    Args:
      tokenizer: of the model.
      seq_length: pieces of a text, or pair, at most; the rest of it is not read.
      pair: whether it reads pairs.
      shape: of what `predict` makes of one row.
    """

    def __init__(
        self, tokenizer: Tokenizer, seq_length: int, pair: bool, shape: Sequence[int], name: str
    ) -> None:
        super().__init__(name=name)
        self._tokenizer = GraphTokenizer(tokenizer)
        self._seq_length, self._shape = seq_length, shape
        self.text_names = ("text_a", "text_b") if pair else ("text",)

    def predict(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """What the model says of int32 [n, S]: float32 [n, ...]."""
        raise NotImplementedError

    def answer(self, values: tf.Tensor) -> Answer:
        """What callers get for `predict`'s values of all texts."""
        raise NotImplementedError

    def signatures(self) -> dict[str, object]:
        """See the class."""
        texts = [tf.TensorSpec([None], tf.string, name) for name in self.text_names]
        return {
            "serving_default": tf.function(self.serve, input_signature=texts),
            "tokens": tf.function(self._tokens, input_signature=[IDS[name] for name in INPUTS]),
        }

    def serve(self, *texts: tf.Tensor) -> Answer:
        """The answers to strings [B]."""
        return self.answer(self.values(texts))

    def values(self, texts: Sequence[tf.Tensor]) -> tf.Tensor:
        """`predict`'s values of strings [B], each computed at its own width."""
        texts = same_size(dict(zip(self.text_names, texts, strict=True)))
        segments = [self._tokenizer(text) for text in texts]
        pieces = tf.add_n([tf.cast(segment.row_lengths(), tf.int32) for segment in segments])
        lengths = tf.minimum(pieces + len(segments) + 1, self._seq_length)

        def run(rows: tf.Tensor, width: tf.Tensor) -> Answer:
            own = [tf.gather(segment, rows) for segment in segments]
            return {"values": self.predict(self._tokenizer.pack(own, width))}

        empty = tf.zeros([tf.size(lengths), *self._shape])
        return in_buckets(lengths, run, {"values": empty}, self._seq_length)["values"]

    def _tokens(self, *ids: tf.Tensor) -> Answer:
        return self.answer(self.predict(dict(zip(INPUTS, ids, strict=True))))


def same_size(inputs: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
    """The inputs, whose first dimensions must be equal: else InvalidArgument names them."""
    sizes = [tf.shape(value)[0] for value in inputs.values()]
    message = f"{' and '.join(inputs)} must have as many entries as each other."
    checks = [tf.debugging.assert_equal(size, sizes[0], message) for size in sizes[1:]]
    with tf.control_dependencies([check for check in checks if check is not None]):
        return [tf.identity(value) for value in inputs.values()]
