"""A classifier's head as a logistic regression on the vectors of its training texts."""

from collections.abc import Callable
from typing import Any

import numpy as np

from albert_tf.tasks.task_model import TaskModel

STRENGTHS = (1.0, 10.0, 100.0, 1000.0)  # scikit-learn's C
FOLDS = 5


class LogisticHead:
    """A function that sets the head of a classifier.

    Cross-validation chooses the strength of the regularization, by the log loss, on the vectors of
    `model`, which must not have been trained on these texts: trained ones hold their labels.

    Args:
      model: the classifier, with its initial weights.
      vectors_of: a function from the classifier to the vectors of the training texts, or of their
        windows, [N, H].
      labels: the labels of these texts, int [N]; each of the classifier occurs.
      text_of: the text that each of them is a part of, int [N]; no text is in two folds.
      class_weights: as scikit-learn's `class_weight`.
    """

    def __init__(
        self,
        model: TaskModel,
        vectors_of: Callable[[Any], np.ndarray],
        labels: np.ndarray,
        text_of: np.ndarray,
        class_weights: str | None = None,
    ) -> None:
        self._vectors_of, self._labels, self._text_of = vectors_of, labels, text_of
        self._class_weights = class_weights
        vectors = vectors_of(model)
        losses = {strength: self._cross_validated(vectors, strength) for strength in STRENGTHS}
        self.strength = min(losses, key=lambda strength: losses[strength][0])
        self.accuracy = losses[self.strength][1]

    def __call__(self, model: TaskModel) -> None:
        """Set the head for the vectors of the model as it is now."""
        regression = self._regression(self.strength).fit(self._vectors_of(model), self._labels)
        weights, bias = regression.coef_, regression.intercept_
        if len(weights) == 1:  # of two labels, scikit-learn has the difference
            weights, bias = (np.concatenate([-x / 2, x / 2]) for x in (weights, bias))
        model.head.set_weights([weights.T, bias])

    def _cross_validated(self, vectors: np.ndarray, strength: float) -> tuple[float, float]:
        """Return the mean log loss and the accuracy on folds that were left out."""
        from sklearn.model_selection import (
            StratifiedGroupKFold,
            StratifiedKFold,
            cross_val_predict,
        )
        from sklearn.utils.class_weight import compute_sample_weight

        _, first = np.unique(self._text_of, return_index=True)
        fewest = int(np.unique(self._labels[first], return_counts=True)[1].min())
        has_parts = len(first) < len(self._labels)
        divide = StratifiedGroupKFold if has_parts else StratifiedKFold
        probabilities = cross_val_predict(
            self._regression(strength),
            vectors,
            self._labels,
            groups=self._text_of if has_parts else None,
            cv=divide(min(FOLDS, fewest), shuffle=True, random_state=0),
            method="predict_proba",
        )
        right = np.take_along_axis(probabilities, self._labels[:, np.newaxis], axis=1)
        accuracy = float(np.mean(probabilities.argmax(1) == self._labels))
        weights = compute_sample_weight(self._class_weights, self._labels)
        losses = -np.log(np.maximum(right[:, 0], 1e-12))
        return float(np.average(losses, weights=weights)), accuracy

    def _regression(self, strength: float) -> Any:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(C=strength, max_iter=1000, class_weight=self._class_weights)
