"""Classifiers in fine-tuning."""

import collections
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.runtime.errors import ConfigError, listed
from albert_tf.tasks.classifier.model import ClassifierSettings, SequenceClassifier
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.features import Features, TextFeatures
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.predictor import predict
from finetuning.datasets.dataset import Data, Prediction
from finetuning.datasets.scores.calibration import Confidences
from finetuning.kinds.baselines.regularization import Predict, Predictions, class_probabilities
from finetuning.kinds.baselines.text_features import features_of
from finetuning.kinds.cards import mistakes
from finetuning.kinds.logistic_head import LogisticHead
from finetuning.kinds.text_kind import TextKind, shown


class Classifier(TextKind[ClassifierSettings]):
    """A label for a text or a pair of texts."""

    has_baseline = True
    kind = KINDS["classifier"]
    has_class_weights = True
    has_one_answer = has_temperature = True
    student_settings: Mapping[str, tuple[Any, str]] = {
        "task.loss": ("cross_entropy", "the student learns the teacher's outputs"),
        "task.exit_losses": (False, "the teacher provides outputs of its last layer only"),
    }
    few_labels = {
        "task.pooling": "mean",
        "task.loss": "contrastive",
        "training.batch_size": 64,
        "training.epochs": 5.0,
        "training.learning_rate": 5e-4,
    }

    def constant_answer(self, data: Data[ClassifierSettings]) -> tuple[str, Prediction]:
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

    def check_training(self, config: Any, train: Features, replicas: int) -> None:
        """Check that a contrastive loss has at least two different texts of each label.

        Raises:
          ConfigError: the loss is `contrastive`, and there are fewer than two different texts of a
            label, or a batch has no two pairs.
        """
        task, training = config.task, config.training
        if not task.is_contrastive:
            return
        loss = f"`task.loss` {task.loss}"
        assert isinstance(train, TextFeatures)
        _, first = np.unique(_texts_of(train), return_index=True)
        counts = np.bincount(train.targets["label"][first], minlength=len(task.labels))
        if lonely := [task.labels[label] for label in np.flatnonzero(counts < 2)]:
            raise ConfigError(
                f"{loss} needs at least 2 different training texts of each label (texts of the "
                "same pieces count once). Received: fewer of "
                f"{listed(lonely)}. Add some, use more of them (--max_train_examples and "
                "--dev_fraction leave some out), or set task.loss=cross_entropy."
            )
        if (size := training.batch_size // replicas) < 4 or size % 2:
            raise ConfigError(
                f"{loss} makes batches of pairs, so `training.batch_size` must be an even number "
                f"of at least 4 for each replica. Received: {size}."
            )
        if training.group_by_length:
            raise ConfigError(
                f"{loss} makes batches of pairs of the same label. Received: "
                "`training.group_by_length` true. Leave it out."
            )

    def head_solver(
        self, model: SequenceClassifier, train: Features, training: Any
    ) -> LogisticHead | None:
        """Return a logistic regression for the loss `contrastive`."""
        if not model.task.is_contrastive:
            return None

        def vectors_of(model: SequenceClassifier) -> np.ndarray:
            with model.distribute_strategy.scope():
                vectors = model.text_vectors()
            return np.asarray(predict(vectors, train, training.batch_size))

        weights = None if training.class_weights == "none" else training.class_weights
        assert isinstance(train, TextFeatures)
        labels = np.asarray(train.targets["label"])
        head = LogisticHead(model, vectors_of, labels, _texts_of(train), weights)
        print(
            f"As it is, the encoder's vectors have a cross-validation accuracy of "
            f"{head.accuracy:.1%} (logistic regression, C = {head.strength:g})",
            flush=True,
        )
        return head

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

    def label_of(self, task: ClassifierSettings, names: str) -> int:
        """Return the index of a label."""
        return task.labels.index(names)

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


def _texts_of(features: TextFeatures) -> np.ndarray:
    """Return the number of each unit's text, int64 [N]; texts of the same pieces have the same."""
    sequences, numbers = features.sequences, dict[bytes, int]()
    units: np.ndarray = np.append(
        np.flatnonzero(np.diff(features.example, prepend=-1)), len(sequences)
    )
    begins = np.append(0, np.cumsum(sequences.lengths, dtype=np.int64))[units]
    parts = [sequences.ids[a:b].tobytes() for a, b in itertools.pairwise(begins)]
    texts = [numbers.setdefault(part, len(numbers)) for part in parts]
    return np.repeat(np.array(texts, np.int64), np.diff(units))
