"""Regressors as SavedModels: text in, number out."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from albert_tf.graph.signatures import Answer
from albert_tf.tasks.regressor.model import SequenceRegressor
from albert_tf.tasks.texts import TaskTextModule
from albert_tf.text.tokenizer import Tokenizer


class RegressorModule(TaskTextModule):
    """A regressor of texts or pairs of texts.

    Signatures: those of `TextModule`, which return `score` float32 [B].
    """

    def __init__(
        self, model: SequenceRegressor, tokenizer: Tokenizer, depths: Sequence[int] = ()
    ) -> None:
        super().__init__(model, tokenizer, [], depths)
        self._score = model.score

    def predict(self, inputs: Mapping[str, tf.Tensor], depth: int | None) -> tf.Tensor:
        """Return the scores, float32 [n], using `depth` layers, or all if None."""
        return self._score(self.pooled_output(inputs, depth))

    def answer(self, values: tf.Tensor) -> Answer:
        """Return the signature's output for scores [B]."""
        return {"score": values}
