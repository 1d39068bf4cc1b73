"""Multi-label classifiers in fine-tuning."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.runtime.bounds import between
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.multi_label.model import MultiLabelSettings, indicators
from albert_tf.tasks.probabilities import logit
from finetuning.datasets import selection
from finetuning.datasets.dataset import Data, Prediction
from finetuning.datasets.scores.calibration import Confidences
from finetuning.datasets.scores.multi_label_metrics import (
    MIN_TEXTS,
    at_thresholds,
    best_thresholds,
    counts_by_label,
    has_own_threshold,
    predicted_labels,
    probabilities_of,
)
from finetuning.kinds.baselines.regularization import Predict, Predictions, class_probabilities
from finetuning.kinds.baselines.text_features import features_of
from finetuning.kinds.cards import mistakes
from finetuning.kinds.kind import CROSS_ENTROPY
from finetuning.kinds.text_kind import SoftCrossEntropy, TextKind, shown
from finetuning.kinds.thresholds import Examples, Parts, Thresholds


class LabelThresholds(Thresholds[MultiLabelSettings]):
    """The probabilities above which labels are predicted."""

    key, flag, metric = "thresholds", "threshold", "average_precision"
    help = (
        "multi_label: the probability above which any label is predicted; by default the run's "
        "task.thresholds"
    )
    bound = between("[0, 1]")
    needs, examples = "texts with several labels (multi_label)", "texts"
    default, default_label = {"thresholds": ()}, "0.5"
    per_label = True

    def hold_out(self, examples: Examples, share: float) -> Parts:
        """Return the rest and the held-out texts; equal texts are in one part."""
        rest, held_out = selection.split(examples, share, "threshold")
        if not all(any(example.label for example in part) for part in (rest, held_out)):
            raise InputError(
                "`training.threshold_share` must leave texts with labels in both parts. "
                f"Received: {share}, of {len(examples):,} texts. Pass another share."
            )
        return rest, held_out

    def at(self, task: MultiLabelSettings, value: float) -> MultiLabelSettings:
        """Return the settings with one threshold for all labels."""
        return task.replace(thresholds=(value,) * len(task.labels))

    def best(
        self,
        predictions: Sequence[Prediction],
        examples: Examples,
        scores: Mapping[str, float],
        per_label: bool,
    ) -> tuple[float, ...]:
        """Return the thresholds with the best micro F1 or, `per_label`, with each label's own."""
        probabilities: np.ndarray = probabilities_of(predictions)
        answers = indicators(examples, probabilities.shape[1])
        return best_thresholds(probabilities, answers, per_label)

    applied = staticmethod(at_thresholds)

    def common(self, task: MultiLabelSettings) -> MultiLabelSettings:
        """Return the settings with the default thresholds."""
        return task.replace(thresholds=())

    def averaged(
        self, task: MultiLabelSettings, members: Sequence[MultiLabelSettings]
    ) -> MultiLabelSettings:
        """Return the settings with the mean of each label's thresholds."""
        mean = np.mean([member.thresholds for member in members], axis=0)
        return task.replace(thresholds=tuple(mean.tolist()))

    def describe(self, value: Any, held_out: Examples, rest: int, per_label: bool) -> str:
        """Return a sentence, also on labels that have the common threshold."""
        text = super().describe(value, held_out, rest, per_label)
        if not per_label:
            return text
        has_own = has_own_threshold(indicators(held_out, len(value)))
        return (
            f"{text[:-1]}; {np.count_nonzero(~has_own):,} of {len(has_own):,} labels are in fewer "
            f"than {MIN_TEXTS} of them and have the common threshold."
        )


class MultiLabel(TextKind[MultiLabelSettings]):
    """Any number of labels for a text or a pair of texts."""

    has_baseline = True
    kind = KINDS["multi_label"]
    thresholds = LabelThresholds()
    has_one_answer = has_temperature = True
    label_keys = ("labels", "label")
    empty_remedy = " Rare labels also need lower thresholds: training.threshold_share=0.1."

    def constant_answer(self, data: Data[MultiLabelSettings]) -> tuple[str, Prediction]:
        """Return the labels of at least half of the training examples, or else the most frequent.

        The probability of each label is its share of the training examples.
        """
        labels = data.task.labels
        shares = indicators(data.train, len(labels)).mean(axis=0)
        chosen = [labels[i] for i in np.argsort(-shares, kind="stable") if shares[i] >= 0.5]
        words = "the labels of at least half of the training examples"
        if not chosen:
            chosen, words = [labels[int(shares.argmax())]], "the most frequent label in training"
        probabilities = dict(zip(labels, shares.tolist(), strict=True))
        names = " and ".join(f"`{name}`" for name in chosen)
        return f"always {names}, {words}", {"labels": chosen, "probabilities": probabilities}

    def confidences(
        self, predictions: Sequence[Prediction], examples: Sequence[TextExample]
    ) -> Confidences:
        """Return the probability of each label of each text; it is right if the text has it."""
        probabilities = probabilities_of(predictions)
        has_label = indicators(examples, probabilities.shape[1])
        return Confidences(probabilities.ravel(), has_label.ravel())

    def scores_of_resample(
        self, scores: dict[str, float], resample: Sequence[Any], examples: Sequence[Any]
    ) -> dict[str, float]:
        """Return the scores, whose means over labels leave out those without a text by chance."""
        present, drawn = (
            len(set(itertools.chain.from_iterable(example.label for example in each)))
            for each in (examples, resample)
        )
        means = ("macro_f1", "average_precision")
        return {n: v * present / max(1, drawn) if n in means else v for n, v in scores.items()}

    def card_sections(
        self,
        task: MultiLabelSettings,
        predictions: Sequence[Prediction],
        examples: Sequence[TextExample],
    ) -> list[str]:
        """Return scores and thresholds by label, and mistakes."""
        labels = task.labels
        counts = counts_by_label(
            indicators(examples, len(labels)), predicted_labels(predictions, labels)
        )
        table = mistakes.by_label(labels, counts, {"threshold": task.thresholds})
        pairs = zip(predictions, examples, strict=True)
        return ["## Labels", table, *mistakes.worst([_compared(task, *pair) for pair in pairs])]

    def label_names(self, task: MultiLabelSettings, label: tuple[int, ...]) -> list[str]:
        """Return the names of labels."""
        return [task.labels[i] for i in label]

    def label_of(self, task: MultiLabelSettings, names: Sequence[str]) -> tuple[int, ...]:
        """Return the indices of labels."""
        return tuple(map(task.labels.index, names))

    def taught_loss(
        self, task: MultiLabelSettings, loss: str, temperature: float
    ) -> tf_keras.losses.Loss:
        """Return the loss of a student."""
        if loss == CROSS_ENTROPY:
            return SigmoidSoftCrossEntropy(temperature)
        return super().taught_loss(task, loss, temperature)

    def outputs_of(self, served: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the model's outputs from those of a signature."""
        return logit(served["probabilities"])

    def baseline(
        self, task: MultiLabelSettings, train: Sequence[TextExample], test: Sequence[TextExample]
    ) -> Predict:
        """A logistic regression for each label on TF-IDF."""
        known, asked = features_of(train, test)
        answers, names = indicators(train, len(task.labels)), task.labels

        def predict(strength: float) -> Predictions:
            columns = [
                class_probabilities(known, answer.astype(int), asked, strength, 2)[:, 1]
                for answer in answers.T
            ]
            rows = np.stack(columns, 1).tolist()
            probabilities = [{"probabilities": dict(zip(names, row, strict=True))} for row in rows]
            return at_thresholds(probabilities, task.replace(thresholds=()))

        return predict


def _compared(
    task: MultiLabelSettings, prediction: Prediction, example: TextExample
) -> mistakes.Row:
    """Return the row of two label sets, ranked by the largest error of a probability."""
    right = {task.labels[i] for i in example.label}
    given = set(prediction["labels"])
    errors = [abs(prediction["probabilities"][name] - (name in right)) for name in right ^ given]

    def joined(names: set[str]) -> str:
        return ", ".join(name for name in task.labels if name in names) or "(no label)"

    return mistakes.Row(shown(example), joined(right), joined(given), max(errors, default=0.0))


@tf_keras.saving.register_keras_serializable("albert_tf")
class SigmoidSoftCrossEntropy(SoftCrossEntropy):
    """`SoftCrossEntropy` of sigmoids instead of a softmax: the mean over the labels."""

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each example; `y_true` and `y_pred` are logits."""
        losses = tf.nn.sigmoid_cross_entropy_with_logits(
            tf.nn.sigmoid(y_true / self.temperature), y_pred / self.temperature
        )
        return self.temperature**2 * tf.reduce_mean(losses, axis=-1)
