"""Calibration error and reliability of probabilities (Guo et al., arXiv 1706.04599)."""

from typing import NamedTuple

import numpy as np

BINS = 15


class Confidences(NamedTuple):
    """Probabilities of M answers, and which of the answers are right."""

    probability: np.ndarray  # float [M]
    is_right: np.ndarray  # bool [M]


class Reliability(NamedTuple):
    """The mean probability, the share of right answers and the number of answers of each bin."""

    probability: np.ndarray  # [bins that hold an answer]
    accuracy: np.ndarray
    size: np.ndarray


class Answered(NamedTuple):
    """What remains if only answers of at least a probability are given.

    Attributes:
      least: the least probability.
      share: the share of the answers that are given.
      accuracy: the share of right ones among these; NaN if there are none.
      refused: the share of all right answers that are not given: the price.
    """

    least: float
    share: float
    accuracy: float
    refused: float


def answered(confidences: Confidences, least: float) -> Answered:
    """Return what remains of at least one answer if those below `least` are refused."""
    given, is_right = confidences.probability >= least, confidences.is_right
    right = int(np.sum(given & is_right))
    accuracy = right / int(np.sum(given)) if given.any() else float("nan")
    refused = 1 - right / int(np.sum(is_right)) if is_right.any() else 0.0
    return Answered(least, float(np.mean(given)), accuracy, refused)


def reliability(confidences: Confidences, bins: int = BINS) -> Reliability:
    """Sort the answers by probability into bins of equal width, without the empty ones.

    A bin holds the probabilities from its lower edge, exclusive, to its upper one.
    """
    probability, is_right = confidences
    place = np.clip(np.ceil(probability * bins).astype(int) - 1, 0, bins - 1)
    size = np.bincount(place, minlength=bins)
    sums = [np.bincount(place, values, bins) for values in (probability, is_right)]
    mean_probability, accuracy = (total[size > 0] / size[size > 0] for total in sums)
    return Reliability(mean_probability, accuracy, size[size > 0])


def calibration_error(confidences: Confidences, bins: int = BINS) -> float:
    """Return the expected calibration error, sum of |B| / M |accuracy(B) - probability(B)|."""
    probability, accuracy, size = reliability(confidences, bins)
    return float(np.sum(size * np.abs(accuracy - probability)) / np.sum(size))
