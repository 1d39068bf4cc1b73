"""What the kinds on a text or a pair of texts share."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.features import TextFeatures
from albert_tf.tasks.task_model import TemperedLoss
from albert_tf.tasks.texts import TextSettingsT
from finetuning.datasets.tables.own_tables import PAIR, SINGLE
from finetuning.kinds.kind import (
    CROSS_ENTROPY,
    SQUARED_ERROR,
    FinetuningKind,
    TeacherOutput,
    text_of,
)


class TextKind(FinetuningKind[TextSettingsT]):
    """A kind whose examples are texts or pairs of texts."""

    hub_task = "text-classification"
    student_losses: Sequence[str] = (CROSS_ENTROPY, SQUARED_ERROR)
    has_depths = True

    def expected_line(self, task: TextSettingsT) -> str:
        """Return a description of a valid line."""
        if task.pair:
            return "A line must be two texts separated by a tab, or a JSON object."
        return "A line must be a text without tabs, or a JSON object with the key text."

    def of_cells(self, cells: Sequence[str], task: TextSettingsT) -> TextExample:
        """Return the text or the pair in the cells of a line."""
        if len(cells) != 1 + task.pair:
            raise ValueError
        return self.of_texts(*cells)

    def of_json(
        self, row: Mapping[str, Any], task: TextSettingsT, columns: Sequence[str]
    ) -> TextExample:
        """Return the example in an object with text, or with text_a and text_b."""
        names: Sequence[str] = PAIR if task.pair else SINGLE
        if columns and columns[0] in row:
            names = columns
        return self.of_texts(*(text_of(row, name) for name in names))

    def by_name(self, example: dict[str, Any], task: TextSettingsT) -> dict[str, Any]:
        """Return the fields of an example with its label by name, if it is known."""
        label = example["label"]
        return example if label is None else {**example, "label": self.label_names(task, label)}

    def example_of(self, values: Mapping[str, Any], task: TextSettingsT) -> TextExample:
        """Return the example that `by_name` has turned into these fields, read from JSON."""
        example: TextExample = super().example_of(values, task)
        if example.label is None:
            return example
        return dataclasses.replace(example, label=self.label_of(task, example.label))

    def label_of(self, task: TextSettingsT, names: Any) -> Any:
        """Return the label of an example whose names `label_names` returns; here a number."""
        return names

    @abc.abstractmethod
    def label_names(self, task: TextSettingsT, label: Any) -> Any:
        """Return the label of an example by name."""

    def text_columns(self, columns: Sequence[str], pair: bool) -> Sequence[str]:
        """Return the columns of the texts in a table."""
        return columns or (PAIR if pair else SINGLE)

    def of_texts(self, *texts: str) -> TextExample:
        """Return the example of a text or a pair."""
        return TextExample(*texts)

    def taught_outputs(self, features: TextFeatures, outputs: np.ndarray) -> list[TeacherOutput]:
        """Return a teacher's output for each text."""
        return [TeacherOutput(output) for output in outputs]

    def taught_targets(
        self, features: TextFeatures, answers: Sequence[TeacherOutput], task: TextSettingsT
    ) -> np.ndarray:
        """Return the teacher's outputs, float32 [N, C]."""
        return np.stack([answer.values for answer in answers])

    def taught_loss(
        self, task: TextSettingsT, loss: str, temperature: float
    ) -> tf_keras.losses.Loss:
        """Return the loss of a student."""
        return student_loss(loss, temperature)


def student_loss(loss: str, temperature: float) -> tf_keras.losses.Loss:
    """Return the loss of logits, of which a softmax makes probabilities."""
    is_soft = loss == CROSS_ENTROPY
    return SoftCrossEntropy(temperature) if is_soft else tf_keras.losses.MeanSquaredError()


@tf_keras.saving.register_keras_serializable("albert_tf")
class SoftCrossEntropy(TemperedLoss):
    """T^2 times the cross-entropy of the student's softmax(logits / T) with the teacher's.

    See Hinton et al. 2015.
    """

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each example; `y_true` and `y_pred` are logits."""
        teacher_probabilities = tf.nn.softmax(y_true / self.temperature)
        losses = tf.nn.softmax_cross_entropy_with_logits(
            teacher_probabilities, y_pred / self.temperature
        )
        return self.temperature**2 * losses


def shown(example: TextExample) -> str:
    """Return the text or the pair of an example for a table."""
    return f"{example.first} ‖ {example.second}" if example.second else example.first
