"""Cosines by hand, TF-IDF beside its definition, and exports of other kinds."""

import math

import numpy as np
import pytest

from albert_tf.runtime.errors import InputError
from benchmarks.cosine import CosineOptions, cosine, main, tf_idf_cosine


def test_cosine_by_hand():
    a = np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0]])
    b = np.array([[4.0, 3.0], [-2.0, 0.0], [1.0, 1.0]])
    np.testing.assert_allclose(cosine(a, b), [24 / 25, -1, 0], atol=1e-12)


def test_tf_idf_by_hand():
    # "x" is in both training texts: idf 1. "y" is in one of them: idf ln(3 / 2) + 1.
    x, y = 1, math.log(3 / 2) + 1
    found = tf_idf_cosine(["xx yy", "xx"], ["xx yy", "xx", "zz"], ["xx", "xx", "xx"])
    np.testing.assert_allclose(found, [x / math.hypot(x, y), 1, 0], atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "words"),
    [("fill_mask", "Its outputs are pieces, probabilities"), ("", "with a SavedModel")],
)
def test_other_exports_are_refused(exports, kind, words):
    with pytest.raises(InputError, match=words):
        main(CosineOptions(str(exports / kind), "sts-b", dry_run=True))
