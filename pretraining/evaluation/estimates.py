"""Accuracies over documents, with their standard errors and verdicts on chance."""

import dataclasses
import math

import numpy as np
from scipy import stats

from albert_tf.runtime.report_text import MIN_EXAMPLES

LEVEL = 0.025  # the share of models at chance that are said to be above it


@dataclasses.dataclass(frozen=True)
class Estimate:
    """An accuracy.

    Attributes:
      share: the share of correct predictions.
      error: its standard error for a sample of documents; 0 for fewer than two.
      count: the number of predictions.
      documents: the number of documents.
    """

    share: float
    error: float
    count: float
    documents: int


def estimate(correct: np.ndarray, count: np.ndarray, documents: np.ndarray) -> Estimate:
    """Return sum(correct) / sum(count), where some count is not 0.

    The standard error is that of a ratio of sums over clusters, sqrt(D / (D - 1) sum_d e_d^2) /
    sum(count) with e_d = correct_d - share count_d (Cochran, Sampling Techniques, section 6.5):
    predictions in one document may go right or wrong together.

    Args:
      correct: float [N], the number of correct predictions in each row.
      count: float [N], the number of predictions in each row.
      documents: int [N], the document of each row.
    """
    rows = count > 0
    _, index = np.unique(documents[rows], return_inverse=True)
    right, total = (np.bincount(index, values[rows]) for values in (correct, count))
    share, number = float(right.sum() / total.sum()), len(total)
    squares = float(((right - share * total) ** 2).sum())
    error = math.sqrt(number / (number - 1) * squares) / total.sum() if number > 1 else 0.0
    return Estimate(share, float(error), float(total.sum()), number)


def above_chance(accuracy: Estimate, chance: float = 0.5) -> str:
    """Return a verdict on whether an accuracy is above chance.

    It is a one-sided t-test over documents at the level LEVEL, with the standard error that is
    shown beside the accuracy.
    """
    if accuracy.count < MIN_EXAMPLES or accuracy.documents < 2:
        return "too few pairs or documents to judge"
    if not accuracy.error:  # every document has the same share
        return "above chance" if accuracy.share > chance else "not above chance"
    distance = (accuracy.share - chance) / accuracy.error
    limit = stats.t.ppf(1 - LEVEL, accuracy.documents - 1)
    verdict = "above chance" if distance > limit else "not above chance"
    return f"{verdict} ({distance:+.1f} standard errors from {100 * chance:.0f} %)"
