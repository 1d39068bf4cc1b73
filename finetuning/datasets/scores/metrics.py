"""Metrics as the leaderboards define them; 0 if undefined, as for constant predictions."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from albert_tf.runtime.errors import InputError


def accuracy(answers: np.ndarray, predicted: np.ndarray) -> float:
    """Return the share of correct predictions."""
    return float(np.mean(answers == predicted))


def f1(answers: np.ndarray, predicted: np.ndarray) -> float:
    """Return the F1 score of label 1, where the labels are 0 and 1."""
    from sklearn.metrics import f1_score

    return float(f1_score(answers, predicted, zero_division=0.0))


def macro_f1(answers: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean of the labels' F1 scores, regardless of their frequencies."""
    from sklearn.metrics import f1_score

    return float(f1_score(answers, predicted, average="macro", zero_division=0.0))


def mcc(answers: np.ndarray, predicted: np.ndarray) -> float:
    """Return Matthews's correlation coefficient for any number of labels."""
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(answers, predicted)) if _vary(answers, predicted) else 0.0


def pearson(answers: np.ndarray, predicted: np.ndarray) -> float:
    """Return Pearson's correlation coefficient."""
    from scipy.stats import pearsonr

    return float(pearsonr(answers, predicted).statistic) if _vary(answers, predicted) else 0.0


def spearman(answers: np.ndarray, predicted: np.ndarray) -> float:
    """Return Spearman's rank correlation coefficient; ties share their mean rank."""
    from scipy.stats import spearmanr

    return float(spearmanr(answers, predicted).statistic) if _vary(answers, predicted) else 0.0


def _vary(*values: np.ndarray) -> bool:
    return all(np.ptp(array) > 0 for array in values)  # False for NaN


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "mcc": mcc,
    "pearson": pearson,
    "spearman": spearman,
}


def compare(
    names: Sequence[str], answers: Sequence[float], predicted: Sequence[float]
) -> dict[str, float]:
    """Return the value of each named metric."""
    return {name: METRICS[name](np.asarray(answers), np.asarray(predicted)) for name in names}


def answers_of(examples: Sequence[Any]) -> list[float]:
    """Return the labels.

    Raises:
      InputError: an example has no known answer.
    """
    require_known(examples)
    return [example.label for example in examples]


def require_known(examples: Sequence[Any]) -> None:
    """Check that every example has a known answer.

    Raises:
      InputError: an example has no known answer.
    """
    for row, example in enumerate(examples):
        if not example.is_known:
            name = f" ({example.id!r})" if example.id else ""
            raise InputError(
                f"Scores require the answer to every example. Example {row}{name} has none: name a "
                "part with known answers, such as dev."
            )
