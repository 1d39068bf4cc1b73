"""A classifier as a SavedModel: text in, label out."""

import tensorflow as tf

from albert_tf.export.signatures import untracked
from albert_tf.tasks.classifier import SequenceClassifier
from albert_tf.text_ops import GraphTokenizer
from albert_tf.tokenization import Tokenizer


class ClassifierModule(tf.Module):
    """Labels texts, or pairs of texts.

    Inputs: `text` string [B]; for a task of pairs `text_a` and `text_b`.
    Outputs: `label` string [B]; `score` float32 [B], its probability; `probabilities` float32
    [B, C] in the order of the task's labels, which assets.extra/config.json lists.
    """

    def __init__(self, model: SequenceClassifier, tokenizer: Tokenizer) -> None:
        super().__init__(name="classifier")
        self._predict, self._weights = untracked(model), model.variables
        self._seq_length, self._pair = model.task.seq_length, model.task.pair
        self._tokenizer = GraphTokenizer(tokenizer)
        self._labels = tf.constant(model.task.labels)

    def signatures(self) -> dict[str, object]:
        """`serving_default`."""
        if self._pair:
            pair = [tf.TensorSpec([None], tf.string, name) for name in ("text_a", "text_b")]
            return {"serving_default": tf.function(self._serve_pair, input_signature=pair)}
        text = tf.TensorSpec([None], tf.string, "text")
        return {"serving_default": tf.function(self._serve_text, input_signature=[text])}

    def _serve_text(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._classify([text])

    def _serve_pair(self, text_a: tf.Tensor, text_b: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._classify([text_a, text_b])

    def _classify(self, texts: list[tf.Tensor]) -> dict[str, tf.Tensor]:
        segments = [self._tokenizer(text) for text in texts]
        lengths = tf.add_n([segment.row_lengths() for segment in segments])
        longest = tf.cast(tf.reduce_max(lengths), tf.int32) + len(segments) + 1
        # No longer than the batch needs: a short text does not pay for `seq_length` positions.
        length = tf.minimum(longest, self._seq_length)
        probabilities = tf.nn.softmax(self._predict(self._tokenizer.pack(segments, length)))
        return {
            "label": tf.gather(self._labels, tf.argmax(probabilities, axis=1)),
            "score": tf.reduce_max(probabilities, axis=1),
            "probabilities": probabilities,
        }
