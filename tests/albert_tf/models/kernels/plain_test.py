"""Tests of the plain functions that several sets of kernels share."""

import math

import numpy as np
import tensorflow as tf

from albert_tf.models.kernels.plain import cross_entropy


def test_cross_entropy_of_ties_and_of_labels_outside_the_classes():
    logits = tf.constant([[1.0, 3.0, 3.0], [1.0, 3.0, 3.0], [0.0, 0.0, 0.0], [2.0, 1.0, 0.0]])
    losses, is_right = cross_entropy(logits, tf.constant([1, 2, 3, -1]))
    assert is_right.numpy().tolist() == [True, False, False, False]  # as argmax: the first
    # Softmax of [1, 3, 3]: the label has e^3 of e + 2 e^3.
    expected = [math.log(2 + math.exp(-2))] * 2 + [math.nan] * 2
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
