"""Metrics of label sets, and the thresholds that are best for F1.

Shapes: N examples, C labels. Answers and predicted labels are bool [N, C], probabilities are
float [N, C].
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.tasks.multi_label.model import (
    THRESHOLD,
    MultiLabelSettings,
    chosen_labels,
    indicators,
)
from finetuning.datasets.scores.metrics import require_known

MIN_TEXTS = 5  # from which a label has a threshold of its own


def score_label_sets(
    predictions: Sequence[Mapping[str, Any]], examples: Sequence[Any]
) -> dict[str, float]:
    """Return `macro_f1`, `micro_f1` and `average_precision` of a multi-label classifier.

    Raises:
      InputError: an example has no known answer.
    """
    require_known(examples)
    names = list(predictions[0]["probabilities"])
    answers = indicators(examples, len(names))
    predicted = predicted_labels(predictions, names)
    return {
        "macro_f1": macro_f1(answers, predicted),
        "micro_f1": micro_f1(answers, predicted),
        "average_precision": average_precision(answers, probabilities_of(predictions)),
    }


def probabilities_of(predictions: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Return the predicted probabilities, float64 [N, C]."""
    return np.array([list(prediction["probabilities"].values()) for prediction in predictions])


def at_thresholds(
    predictions: Sequence[Mapping[str, Any]], task: MultiLabelSettings
) -> list[dict[str, Any]]:
    """Return predictions with the `labels` that `task.thresholds` give for their probabilities."""
    rows = zip(predictions, probabilities_of(predictions), strict=True)
    return [{**prediction, "labels": chosen_labels(row, task)} for prediction, row in rows]


def predicted_labels(predictions: Sequence[Mapping[str, Any]], names: Sequence[str]) -> np.ndarray:
    """Return the predicted labels, bool [N, C], of the named C."""
    index = {name: i for i, name in enumerate(names)}
    is_predicted: np.ndarray = np.zeros([len(predictions), len(names)], bool)
    for row, prediction in enumerate(predictions):
        is_predicted[row, [index[name] for name in prediction["labels"]]] = True
    return is_predicted


def counts_by_label(
    answers: np.ndarray, predicted: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how many examples have, are predicted to have, and rightly have each label, [C]."""
    return answers.sum(axis=0), predicted.sum(axis=0), (answers & predicted).sum(axis=0)


def macro_f1(answers: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean of the labels' F1 scores; that of a label that never occurs is 0."""
    right, given, both = counts_by_label(answers, predicted)
    return float(np.mean(2 * both / np.maximum(1, right + given)))


def micro_f1(answers: np.ndarray, predicted: np.ndarray) -> float:
    """Return the F1 score of all decisions, N x C of them."""
    right, given, both = (int(counts.sum()) for counts in counts_by_label(answers, predicted))
    return 2 * both / max(1, right + given)


def average_precision(answers: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the mean of the labels' average precisions, which need no threshold.

    The average precision of a label is scikit-learn's: the mean of the precision at the rank of
    each example that has the label, where equally probable examples share the last of their ranks.
    As there, a label that no example has counts as 0.
    """
    labels = np.flatnonzero(answers.any(axis=0))
    values = [_average_precision(answers[:, i], probabilities[:, i]) for i in labels]
    return float(np.sum(values)) / answers.shape[1]


def _average_precision(answers: np.ndarray, probabilities: np.ndarray) -> float:
    ends, right = by_rank(probabilities, answers)
    gained = np.diff(right, prepend=0)
    return float((gained * right / ends).sum() / right[-1])


def by_rank(probabilities: np.ndarray, answers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each distinct probability, from the highest one, how many are as high or higher.

    The second array counts those of them that are right.
    """
    order = np.argsort(-probabilities, kind="stable")
    ordered = probabilities[order]
    ends: np.ndarray = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)
    return ends + 1, np.cumsum(answers[order])[ends]


def best_threshold(probabilities: np.ndarray, answers: np.ndarray) -> float:
    """Return the threshold on probabilities [n] with the best F1, where bool [n] are the answers.

    Every division of the distinct probabilities is tried, but a probability of 0 is above no
    threshold. The threshold is in the middle between the two that it separates, and of equally
    good ones the highest. Without a true answer, F1 is undefined and the threshold is 0.5.
    """
    if not answers.any():
        return THRESHOLD
    ends, right = by_rank(probabilities, answers)
    ordered: np.ndarray = np.append(np.unique(probabilities)[::-1], 0.0)
    f1: np.ndarray = 2 * right / (ends + answers.sum())
    best = int(np.argmax(f1[: max(1, np.count_nonzero(ordered))]))
    above, below = float(ordered[best]), float(ordered[best + 1])
    middle = (above + below) / 2
    return middle if middle < above else below  # the middle of neighboring floats is one of them


def best_thresholds(
    probabilities: np.ndarray, answers: np.ndarray, per_label: bool
) -> tuple[float, ...]:
    """Return a threshold for each label.

    It is the one that is best for the micro F1 of all labels, or with `per_label` for the label's
    own F1. A label in fewer than MIN_TEXTS texts has the common threshold also then.
    """
    common = best_threshold(probabilities.ravel(), answers.ravel())
    has_own = has_own_threshold(answers) if per_label else np.zeros(answers.shape[1], bool)
    return tuple(
        best_threshold(probabilities[:, i], answers[:, i]) if is_own else common
        for i, is_own in enumerate(has_own)
    )


def has_own_threshold(answers: np.ndarray) -> np.ndarray:
    """Return which labels are in enough texts for thresholds of their own, bool [C]."""
    return answers.sum(axis=0) >= MIN_TEXTS
