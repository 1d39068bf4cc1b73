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
