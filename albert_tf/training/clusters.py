"""Standard errors of examples that come in clusters, such as the questions about a paragraph."""

import math

import numpy as np


def error_of_ratio(values: np.ndarray, counts: np.ndarray, clusters: np.ndarray) -> float:
    """Return the standard error of sum(values) / sum(counts) for a sample of clusters.

    It is sqrt(D / (D - 1) sum_d e_d^2) / sum(counts) for D clusters, with e_d = values_d - ratio
    counts_d of their sums (Cochran, Sampling Techniques, section 6.5): values in one cluster may be
    high or low together. It is 0 for a single cluster.

    Args:
      values: float [N].
      counts: float [N], each above 0; ones for a mean over N values.
      clusters: int [N], the cluster of each value.
    """
    _, index = np.unique(clusters, return_inverse=True)
    value, count = (np.bincount(index, each) for each in (values, counts))
    number, total = len(count), float(count.sum())
    squares = float(((value - value.sum() / total * count) ** 2).sum())
    return math.sqrt(number / (number - 1) * squares) / total if number > 1 else 0.0
