"""A classifier as a SavedModel: text in, label out."""

from collections.abc import Mapping

import tensorflow as tf

from albert_tf.export.signatures import untracked
from albert_tf.export.text_module import Answer, TextModule
from albert_tf.tasks.classifier import SequenceClassifier
from albert_tf.tokenization import Tokenizer


class ClassifierModule(TextModule):
    """Labels texts, or pairs of texts.

    Signatures: those of `TextModule`, with `label` string [B]; `score` float32 [B], its
    probability; `probabilities` float32 [B, C] in the order of the task's labels, which
    assets.extra/config.json lists. And `classify`, TF Serving's classification API: serialized
    tf.Examples `inputs` string [B], whose features are named as the texts -> `classes` string and
    `scores` float32 [B, C].
    """

    def __init__(self, model: SequenceClassifier, tokenizer: Tokenizer) -> None:
        task = model.task
        super().__init__(
            tokenizer, task.seq_length, task.pair, [len(task.labels)], name="classifier"
        )
        self._predict, self._weights = untracked(model), model.variables
        self._labels = tf.constant(task.labels)

    def predict(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return tf.nn.softmax(self._predict(inputs))

    def answer(self, values: tf.Tensor) -> Answer:
        return {
            "label": tf.gather(self._labels, tf.argmax(values, axis=1)),
            "score": tf.reduce_max(values, axis=1),
            "probabilities": values,
        }

    def signatures(self) -> dict[str, object]:
        examples = tf.TensorSpec([None], tf.string, "inputs")
        classify = tf.function(self._classify, input_signature=[examples])
        return super().signatures() | {"classify": classify}

    def _classify(self, inputs: tf.Tensor) -> Answer:
        features = {name: tf.io.FixedLenFeature([], tf.string) for name in self.text_names}
        texts = tf.io.parse_example(inputs, features)
        scores = self.values([texts[name] for name in self.text_names])
        classes = tf.broadcast_to(self._labels, tf.shape(scores))
        return {"classes": classes, "scores": scores}
