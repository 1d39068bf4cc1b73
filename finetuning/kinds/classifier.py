"""Classifiers in fine-tuning."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.kinds import KINDS
from finetuning.datasets.dataset import Data, Prediction
from finetuning.datasets.scores.calibration import Confidences
from finetuning.kinds.baselines.regularization import Predict, Predictions, class_probabilities
from finetuning.kinds.baselines.text_features import features_of
from finetuning.kinds.cards import mistakes
from finetuning.kinds.text_kind import TextKind, shown


class Classifier(TextKind[ClassifierSettings]):
    """A label for a text or a pair of texts."""

    has_baseline = True
    kind = KINDS["classifier"]
    has_class_weights = True
    has_temperature = True

    def constant_answer(self, data: Data) -> tuple[str, Prediction]:
        """Return the most frequent label."""
        labels = data.task.labels
        (most, _), *_ = collections.Counter(example.label for example in data.train).most_common(1)
        name = labels[int(most)]
        words = f"always `{name}`, the most frequent label in training"
        return words, {"label": name, "probabilities": dict.fromkeys(labels, 0.0)}

    def card_sections(
        self,
        task: ClassifierSettings,
        predictions: Sequence[Prediction],
        examples: Sequence[TextExample],
    ) -> list[str]:
        """Return scores by label, the confusion matrix if it is small, and mistakes."""
        rows = [
            mistakes.Row(
                shown(example),
                self.label_names(task, example.label),
                prediction["label"],
                prediction["score"],
            )
            for prediction, example in zip(predictions, examples, strict=True)
        ]
        return ["## Classes", *mistakes.of_classes(task.labels, rows), *mistakes.worst(rows)]

    def confidences(
        self, predictions: Sequence[Prediction], examples: Sequence[TextExample]
    ) -> Confidences:
        """Return the probability of each predicted label."""
        pairs = zip(predictions, examples, strict=True)
        right = [list(p["probabilities"]).index(p["label"]) == e.label for p, e in pairs]
        return Confidences(np.array([p["score"] for p in predictions]), np.array(right))

    def label_names(self, task: ClassifierSettings, label: Any) -> str:
        """Return the name of a label."""
        return task.labels[int(label)]

    def outputs_of(self, served: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the model's outputs from those of a signature."""
        return np.log(served["probabilities"])

    def baseline(
        self, task: ClassifierSettings, train: Sequence[TextExample], test: Sequence[TextExample]
    ) -> Predict:
        """Logistic regression on TF-IDF features."""
        known, asked = features_of(train, test)
        labels = np.array([example.label for example in train], int)

        def predict(strength: float) -> Predictions:
            rows = class_probabilities(known, labels, asked, strength, len(task.labels))
            return [
                {
                    "label": task.labels[row.argmax()],
                    "probabilities": dict(zip(task.labels, row.tolist(), strict=True)),
                }
                for row in rows
            ]

        return predict
