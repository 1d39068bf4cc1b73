"""Average precision and best thresholds of pairs, by hand and by the evaluator's definition."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, average_precision_score, f1_score

from finetuning.datasets.scores.pair_metrics import METRICS, score_pairs


def test_by_hand():
    labels, scores = np.array([1, 0, 1, 0, 0]), np.array([0.9, 0.8, 0.6, 0.3, 0.1])
    assert score_pairs(labels, scores) == pytest.approx(
        {
            "average_precision": (1 + 2 / 3) / 2,
            "best_f1": 2 * 2 / (3 + 2),  # the first three
            "best_f1_threshold": 0.45,
            "best_accuracy": 4 / 5,  # the first one, or the first three
            "best_accuracy_threshold": 0.85,
        }
    )


@pytest.mark.parametrize("digits", [1, 9])  # with equal scores, and without
@pytest.mark.parametrize("seed", range(5))
def test_generated_pairs(seed, digits):
    """Against scikit-learn's functions, with every threshold between two neighboring scores."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation([0] * 30 + [1] * (3 + 9 * seed))
    scores = np.round(labels + rng.normal(size=len(labels)), digits)
    found = score_pairs(labels, scores)
    assert found["average_precision"] == pytest.approx(average_precision_score(labels, scores))
    distinct = np.unique(scores)
    thresholds = (distinct[:-1] + distinct[1:])[::-1] / 2
    for name, function in (("best_f1", f1_score), ("best_accuracy", accuracy_score)):
        values = [function(labels, scores > each) for each in thresholds]
        assert found[name] == pytest.approx(max(values))
        assert found[f"{name}_threshold"] == pytest.approx(thresholds[np.argmax(values)])


@pytest.mark.parametrize(("labels", "scores"), [([1, 0], [0.5, 0.5]), ([1], [0.3])])
def test_no_threshold_separates_equal_scores(labels, scores):
    found = score_pairs(np.array(labels), np.array(scores))
    assert [found[name] for name in METRICS] == [sum(labels) / len(labels), 0, 0]


def test_pairs_without_a_positive():
    found = score_pairs(np.array([0, 0]), np.array([0.2, 0.4]))
    assert [found[name] for name in METRICS] == [0, 0, 0.5]
