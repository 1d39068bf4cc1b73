"""Accuracies over documents, with their standard errors and verdicts on chance."""

import dataclasses

import numpy as np
from scipy import stats

from albert_tf.runtime.report_text import MIN_EXAMPLES
from albert_tf.training.clusters import error_of_ratio

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

    The standard error has the documents as clusters: predictions in one document may go right or
    wrong together.

    Args:
      correct: float [N], the number of correct predictions in each row.
      count: float [N], the number of predictions in each row.
      documents: int [N], the document of each row.
    """
    rows = count > 0
    correct, count, documents = correct[rows], count[rows], documents[rows]
    error, total = error_of_ratio(correct, count, documents), float(count.sum())
    return Estimate(float(correct.sum()) / total, error, total, len(np.unique(documents)))


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
