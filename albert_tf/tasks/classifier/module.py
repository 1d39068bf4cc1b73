"""Classifiers as SavedModels: text in, label out."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from albert_tf.graph.signatures import Answer, signature, untracked
from albert_tf.graph.text_module import classify_signature
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.classifier.early_exit import EarlyExit
from albert_tf.tasks.classifier.model import SequenceClassifier
from albert_tf.tasks.texts import TaskTextModule
from albert_tf.text.tokenizer import Tokenizer


class ClassifierModule(TaskTextModule):
    """A classifier of texts or pairs of texts.

    Shapes: B texts, C labels.

    Signatures:
      those of `TextModule`: they return `label` string [B], its probability `score` float32 [B]
        and `probabilities` float32 [B, C] in the order of the task's labels, which
        assets.extra/config.json lists.
      classify: TF Serving's classification API. It takes serialized tf.Examples `inputs` string
        [B], whose features have the names of the texts, and returns `classes` string [B, C] and
        `scores` float32 [B, C].
      early_exit: like serving_default, except that a text leaves the encoder once `patience` layers
        in a row have not changed its label. It also returns `depth` int32 [B], the number of layers
        used for each text.

    Args:
      model: the fine-tuned model.
      tokenizer: the model's tokenizer.
      depths: see `TextModule`.
      patience: 0 for no signature early_exit.

    Raises:
      InputError: `patience` is set for a task whose `long_texts` is not `cut`, or whose `pooling`
        is not `cls`.
    """

    def __init__(
        self,
        model: SequenceClassifier,
        tokenizer: Tokenizer,
        depths: Sequence[int] = (),
        patience: int = 0,
    ) -> None:
        super().__init__(model, tokenizer, [len(model.task.labels)], depths)
        if patience and model.task.pooling != "cls":
            raise InputError(
                "--patience must be 0 for a run whose head does not read the encoder's pooled "
                f"output (task.pooling={model.task.pooling}). Received: {patience}."
            )
        if patience and model.task.long_texts != "cut":
            raise InputError(
                "--patience must be 0 for a run that reads long texts in windows "
                f"(task.long_texts={model.task.long_texts}). Received: {patience}."
            )
        self._head, self._pooling, self._mean = (
            untracked(model.head),
            model.task.pooling,
            model.mean,
        )
        self._labels = tf.constant(model.task.labels)
        self._leave_early = EarlyExit(model, patience) if patience else None

    def predict(self, inputs: Mapping[str, tf.Tensor], depth: int | None) -> tf.Tensor:
        """Return the probabilities, float32 [n, C], using `depth` layers, or all if None."""
        if self._pooling == "cls":
            pooled = self.pooled_output(inputs, depth)
        else:
            hidden = self._encode(inputs, num_layers=depth)["sequence_output"]
            pooled = self._mean(hidden, inputs["input_mask"])
        return tf.nn.softmax(self._head(pooled))

    def pool(self, values: tf.Tensor, text: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        """Return probabilities, whose sum is no longer 1 after `max`."""
        pooled = super().pool(values, text, count)
        return pooled / tf.reduce_sum(pooled, axis=1, keepdims=True)

    def answer(self, values: tf.Tensor) -> Answer:
        """Return the signature's outputs for probabilities [B, C]."""
        return {
            "label": tf.gather(self._labels, tf.argmax(values, axis=1)),
            "score": tf.reduce_max(values, axis=1),
            "probabilities": values,
        }

    def signatures(self) -> dict[str, object]:
        """Return the signatures that the class describes."""
        signatures = super().signatures() | {"classify": classify_signature(self, self._labels)}
        if self._leave_early is None:
            return signatures
        texts = [tf.TensorSpec([None], tf.string, name) for name in self.text_names]
        return signatures | {"early_exit": signature(self._early_exit, texts)}

    def _early_exit(self, *texts: tf.Tensor) -> Answer:
        assert self._leave_early is not None
        count = tf.size(texts[0])
        empty = {"values": tf.zeros([count, *self._shape]), "depth": tf.zeros([count], tf.int32)}
        outputs = self.run_in_buckets(texts, self._leave_early, empty)
        return self.answer(outputs["values"]) | {"depth": outputs["depth"]}
