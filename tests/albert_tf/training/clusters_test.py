"""The standard error of clusters by hand."""

import math

import numpy as np
import pytest

from albert_tf.training.clusters import error_of_ratio


def test_values_of_one_cluster_go_together():
    """Sums of 3, 1 and 1 of 4, 4 and 2, so half: e is 1, -1 and 0, sqrt(3 / 2 * 2) / 10."""
    values, clusters = np.array([2.0, 1, 1, 0, 1]), np.array([7, 7, 9, 9, 8])
    counts = np.full(5, 2.0)
    assert error_of_ratio(values, counts, clusters) == pytest.approx(math.sqrt(3) / 10)
    assert error_of_ratio(values, counts, np.zeros(5, int)) == 0.0


def test_clusters_of_one_value_have_the_error_of_a_mean():
    values = np.array([1.0, 2, 4, 9])
    error = error_of_ratio(values, np.ones(4), np.arange(4))
    assert error == pytest.approx(values.std(ddof=1) / 2)
