"""A regressor as a SavedModel: text in, a number out."""

from collections.abc import Mapping

import tensorflow as tf

from albert_tf.export.signatures import untracked
from albert_tf.export.text_module import Answer, TextModule
from albert_tf.tasks.regressor import SequenceRegressor
from albert_tf.tokenization import Tokenizer


class RegressorModule(TextModule):
    """Scores texts, or pairs of texts. Signatures: those of `TextModule`; `score` float32 [B]."""

    def __init__(self, model: SequenceRegressor, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer, model.task.seq_length, model.task.pair, [], name="regressor")
        self._predict, self._weights = untracked(model), model.variables

    def predict(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return self._predict(inputs)

    def answer(self, values: tf.Tensor) -> Answer:
        return {"score": values}
