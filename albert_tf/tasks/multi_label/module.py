"""Multi-label classifiers as SavedModels: text in, labels out."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from albert_tf.graph.signatures import Answer, untracked
from albert_tf.graph.text_module import classify_signature
from albert_tf.tasks.multi_label.model import MultiLabelClassifier
from albert_tf.tasks.texts import TaskTextModule
from albert_tf.text.tokenizer import Tokenizer


class MultiLabelModule(TaskTextModule):
    """A multi-label classifier of texts or pairs of texts.

    Shapes: B texts, C labels.

    Signatures:
      those of `TextModule`: they return `labels` string [B, C], the labels whose probabilities
        exceed their thresholds, the most probable first, then empty strings; `chosen` bool [B, C],
        True for the same labels; and `probabilities` float32 [B, C]. The last two are in the order
        of the task's labels, which assets.extra/config.json lists.
      classify: TF Serving's classification API. It takes serialized tf.Examples `inputs` string
        [B], whose features have the names of the texts, and returns `classes` string [B, C], all
        labels of the task, and `scores` float32 [B, C], their probabilities.

    Args:
      model: the fine-tuned model.
      tokenizer: the model's tokenizer.
      depths: see `TextModule`.
    """

    def __init__(
        self, model: MultiLabelClassifier, tokenizer: Tokenizer, depths: Sequence[int] = ()
    ) -> None:
        super().__init__(model, tokenizer, [len(model.task.labels)], depths)
        self._head = untracked(model.head)
        self._labels = tf.constant(model.task.labels)
        self._thresholds = tf.constant(model.task.thresholds, tf.float32)

    def predict(self, inputs: Mapping[str, tf.Tensor], depth: int | None) -> tf.Tensor:
        """Return the probabilities, float32 [n, C], using `depth` layers, or all if None."""
        return tf.nn.sigmoid(self._head(self.pooled_output(inputs, depth)))

    def answer(self, values: tf.Tensor) -> Answer:
        """Return the signature's outputs for probabilities [B, C]."""
        chosen = values > self._thresholds
        order = tf.argsort(tf.where(chosen, values, -1.0), direction="DESCENDING", stable=True)
        is_chosen = tf.gather(chosen, order, batch_dims=1)
        return {
            "labels": tf.where(is_chosen, tf.gather(self._labels, order), ""),
            "chosen": chosen,
            "probabilities": values,
        }

    def signatures(self) -> dict[str, object]:
        """Return the signatures that the class describes."""
        return super().signatures() | {"classify": classify_signature(self, self._labels)}
