"""Rankings: the order of equal scores, and reciprocal rank fusion by hand."""

import numpy as np
import pytest

from finetuning.searching.rankings import best, fused


def test_the_best_scores():
    scores = np.array([1.0, 3.0, 2.0, 3.0])
    assert best(scores, 3) == [(1, 3.0), (3, 3.0), (2, 2.0)]
    assert best(scores, 1, np.array([9, 8, 7, 6])) == [(6, 3.0)]
    assert best(scores, 9) == [(1, 3.0), (3, 3.0), (2, 2.0), (0, 1.0)]
    assert best(scores[:0], 3) == best(scores, 0) == []


def test_fusion_by_hand():
    found = fused([[(5, 9.0), (7, 8.0), (1, 7.0)], [(1, 0.9), (5, 0.8)]])
    assert [row for row, _ in found] == [5, 1, 7]
    assert [score for _, score in found] == pytest.approx(
        [1 / 61 + 1 / 62, 1 / 63 + 1 / 61, 1 / 62], abs=1e-15
    )
    assert fused([[(2, 1.0)], [(1, 1.0)]]) == [(1, 1 / 61), (2, 1 / 61)]
    assert fused([[], []]) == []
