"""Tests of probabilities where NumPy raises for every floating-point error."""

import numpy as np

from albert_tf.tasks.probabilities import sigmoid, softmax


def test_tiny_probabilities_are_zero_and_no_error():
    with np.errstate(all="raise"):
        assert softmax(np.array([0.0, 0.0, -1e9])).tolist() == [0.5, 0.5, 0]
        assert sigmoid(np.array([-1e9, 0.0, 1e9])).tolist() == [0, 0.5, 1]
