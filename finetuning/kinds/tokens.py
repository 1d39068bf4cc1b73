"""Token classifiers in fine-tuning."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.tokens.examples import TokenExample
from albert_tf.tasks.tokens.features import TokenFeatures, words_per_window
from albert_tf.tasks.tokens.model import TokenSettings
from finetuning.datasets.dataset import Data, Prediction
from finetuning.datasets.tokens.object_files import text_key_of
from finetuning.kinds.baselines import word_features
from finetuning.kinds.cards import entity_mistakes
from finetuning.kinds.kind import (
    CROSS_ENTROPY,
    SQUARED_ERROR,
    FinetuningKind,
    TeacherOutput,
    text_of,
)
from finetuning.kinds.text_kind import student_loss


class Tokens(FinetuningKind[TokenSettings]):
    """Labeled spans of a text, or a label for each word."""

    kind = KINDS["token_classifier"]
    hub_task = "token-classification"
    label_keys = ("entities", "entities")
    table_columns = ("start", "end", "label", "score", "text")
    counted = ("words_per_window",)
    student_losses = (CROSS_ENTROPY, SQUARED_ERROR)
    has_baseline = has_one_answer = True

    def expected_line(self, task: TokenSettings) -> str:
        """Return a description of a valid line."""
        return "A line must be a text, or a JSON object with the key text."

    def of_cells(self, cells: Sequence[str], task: TokenSettings) -> TokenExample:
        """Return the text of a line, which may have tabs."""
        return TokenExample("\t".join(cells))

    def of_json(
        self, row: Mapping[str, Any], task: TokenSettings, columns: Sequence[str]
    ) -> TokenExample:
        """Return the example in an object with text."""
        key = text_key_of(columns)
        return TokenExample(text_of(row, key if isinstance(row.get(key), str) else "text"))

    def answer_of(self, example: TokenExample) -> Any:
        """Return the labeled spans."""
        return example.entities

    def constant_answer(self, data: Data[TokenSettings]) -> tuple[str, Prediction] | None:
        """Return no entity; None if every word has a label."""
        if data.task.scheme == "words":
            return None
        return "no entity in any text", {"entities": []}

    def card_sections(
        self,
        task: TokenSettings,
        predictions: Sequence[Prediction],
        examples: Sequence[TokenExample],
    ) -> list[str]:
        """Return scores by label, and wrong spans."""
        return entity_mistakes.sections(predictions, examples)

    def rows_of(self, prediction: Prediction) -> list[list[Any]]:
        """Return a row for each span."""
        return [[span[key] for key in self.table_columns] for span in prediction["entities"]]

    def with_counts(self, task: TokenSettings, train: TokenFeatures) -> TokenSettings:
        """Return the settings with the words of a training window."""
        return task.replace(words_per_window=words_per_window(train))

    def text_columns(self, columns: Sequence[str], pair: bool) -> Sequence[str]:
        """Return the column of the text in a table."""
        return (text_key_of(columns),)

    def of_texts(self, *texts: str) -> TokenExample:
        """Return the example of a text."""
        (text,) = texts
        return TokenExample(text)

    def taught_outputs(self, features: TokenFeatures, outputs: np.ndarray) -> list[TeacherOutput]:
        """Return the first characters of a text's words, and the logits of their tags."""
        ends = features.word_bounds[1:-1]
        logits = np.split(features.of_words(outputs), ends)
        starts = np.split(features.word_first, ends)
        return [TeacherOutput(*each) for each in zip(logits, starts, strict=True)]

    def taught_targets(
        self, features: TokenFeatures, answers: Sequence[TeacherOutput], task: TokenSettings
    ) -> np.ndarray:
        """Return the teacher's logits at the student's words, float32 [N, S, tags], else NaN.

        Words are matched by their first characters; one that the teacher's vocabulary does not have
        has no target.
        """
        shape = [len(features), features.seq_length, len(task.tags)]
        targets: np.ndarray = np.full(shape, np.nan, np.float32)
        for row, (flat, first) in enumerate(answers):
            words = np.arange(*features.word_bounds[row : row + 2])
            at: Any = np.searchsorted(first, features.word_first[words])
            is_shared = np.append(first, -1)[at] == features.word_first[words]
            shared = words[is_shared]
            place = features.word_window[shared], features.word_position[shared]
            targets[place] = flat.reshape(-1, shape[2])[at[is_shared]]
        return targets

    def taught_loss(
        self, task: TokenSettings, loss: str, temperature: float
    ) -> tf_keras.losses.Loss:
        """Return the loss of a student, over the words."""
        return PerWordLoss(student_loss(loss, temperature), task.words_per_window)

    baseline = staticmethod(word_features.prepare)


@tf_keras.saving.register_keras_serializable("albert_tf")
class PerWordLoss(tf_keras.losses.Loss):
    """The sum of another loss over the words of a window, divided by `words_per_window`.

    `y_true` is float32 [B, T, tags], NaN where the teacher has no output; `y_pred` is [B, S, tags],
    S <= T.
    """

    def __init__(self, loss: tf_keras.losses.Loss, words_per_window: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.loss, self.words_per_window = loss, words_per_window

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        loss = tf_keras.saving.serialize_keras_object(self.loss)
        return super().get_config() | {"loss": loss, "words_per_window": self.words_per_window}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "PerWordLoss":
        """Build the loss from the result of `get_config`."""
        loss = tf_keras.saving.deserialize_keras_object(config["loss"])
        return cls(**config | {"loss": loss})

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each window, [B]; both arguments are logits."""
        y_true = y_true[:, : tf.shape(y_pred)[1]]
        is_word = ~tf.math.is_nan(y_true[:, :, 0])
        known = tf.where(is_word[:, :, tf.newaxis], y_true, tf.zeros_like(y_true))
        losses = tf.where(is_word, self.loss.call(known, y_pred), tf.zeros_like(y_pred[:, :, 0]))
        return tf.reduce_sum(losses, axis=1) / self.words_per_window
