"""The strength of a baseline's regularization, chosen by cross-validation on training examples."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from finetuning.datasets.dataset import Prediction
from finetuning.datasets.selection import groups

STRENGTHS = (0.1, 1.0, 10.0, 100.0, 1000.0)  # C of logistic, alpha of ridge regression
DEFAULT = 1.0  # scikit-learn's
FOLDS = 5

Examples = Sequence[Any]
Predictions = list[Prediction]
Predict = Callable[[float], Predictions]  # from a strength to predictions
Prepare = Callable[[Examples, Examples], Predict]  # of training examples, and those to predict


def best_strength(
    prepare: Prepare, train: Examples, score: Callable[[Predictions, Examples], float]
) -> float:
    """Return the strength with the best cross-validation score.

    A model trained on four folds predicts the fifth; `score` compares the predictions of all five
    with the training examples. No group (`finetuning.datasets.selection.groups`) is in two folds.
    If there is only one group, scikit-learn's default is returned. Print a note if the best one is
    at an end of `STRENGTHS`.
    """
    from sklearn.model_selection import GroupKFold

    numbers = groups(train)
    if (count := min(FOLDS, len(set(numbers)))) < 2:
        return DEFAULT
    folds = [
        (rows, prepare([train[row] for row in others], [train[row] for row in rows]))
        for others, rows in GroupKFold(count).split(train, groups=numbers)
    ]
    order = np.argsort(np.concatenate([rows for rows, _ in folds]))

    def cross_validated(strength: float) -> float:
        predictions = [prediction for _, predict in folds for prediction in predict(strength)]
        return score([predictions[row] for row in order], train)

    scores = {strength: cross_validated(strength) for strength in STRENGTHS}
    best = max(scores, key=scores.__getitem__)
    for end, neighbor in (STRENGTHS[:2], STRENGTHS[:-3:-1]):
        if best == end and scores[end] > scores[neighbor]:
            print(
                f"note: of the regularizations {', '.join(map(str, STRENGTHS))}, cross-validation "
                f"chose {best}, the last at one end. The baseline may be better beyond it.",
                file=sys.stderr,
            )
    return best


def class_probabilities(
    train: Any, labels: np.ndarray, test: Any, strength: float, count: int
) -> np.ndarray:
    """Return the probabilities of `count` classes by logistic regression, float64 [N, count].

    A class without a training example has probability 0.

    Args:
      train: features, sparse [M, F].
      labels: int [M].
      test: features, sparse [N, F].
      strength: scikit-learn's C.
      count: the number of classes.
    """
    from sklearn.linear_model import LogisticRegression

    probabilities = np.zeros([test.shape[0], count])
    classes = np.unique(labels)
    if len(classes) < 2:  # nothing to fit
        probabilities[:, classes] = 1.0
    else:
        model = LogisticRegression(C=strength, max_iter=1000).fit(train, labels)
        probabilities[:, classes] = model.predict_proba(test)
    return probabilities
