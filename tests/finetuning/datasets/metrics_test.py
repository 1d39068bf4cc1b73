"""Metrics against values by hand, and against their formulas on random answers."""

import math
import warnings

import numpy as np
import pytest

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.examples import TextExample
from finetuning.datasets import DATASETS
from finetuning.datasets.scores.metrics import METRICS, compare


def test_by_hand():
    answers, predicted = [1, 1, 1, 0, 0], [1, 1, 0, 1, 0]  # 2 true, 1 false of 1; 1 and 1 of 0
    assert compare(["accuracy", "f1", "macro_f1", "mcc"], answers, predicted) == pytest.approx(
        {
            "accuracy": 3 / 5,
            "f1": 2 / 3,
            "macro_f1": (2 / 3 + 1 / 2) / 2,
            "mcc": (2 * 1 - 1 * 1) / math.sqrt(3 * 3 * 2 * 2),
        }
    )
    assert METRICS["pearson"](np.array([1, 2, 3]), np.array([1, 2, 4])) == pytest.approx(
        3 / math.sqrt(2 * 42 / 9)
    )
    # Ranks 1, 2.5, 2.5, 4 and 1, 3, 2, 4.
    assert METRICS["spearman"](np.array([1, 2, 2, 4]), np.array([1, 30, 2, 400])) == pytest.approx(
        4.5 / math.sqrt(4.5 * 5)
    )


def test_formulas_on_random_answers():
    rng = np.random.default_rng(0)
    answers = rng.integers(0, 3, 200)
    predicted = np.where(rng.random(200) < 0.6, answers, rng.integers(0, 3, 200))
    # Gorodkin 2004: the correlation of the indicators, summed over the labels.
    x, y = (np.eye(3)[labels] - np.eye(3)[labels].mean(axis=0) for labels in (answers, predicted))
    expected = (x * y).sum() / math.sqrt((x * x).sum() * (y * y).sum())
    assert METRICS["mcc"](answers, predicted) == pytest.approx(expected)
    pairs = [((answers == i), (predicted == i)) for i in range(3)]
    f1s = [2 * (a & p).sum() / (a.sum() + p.sum()) for a, p in pairs]
    assert METRICS["macro_f1"](answers, predicted) == pytest.approx(np.mean(f1s))
    scores = rng.permutation(200) / 40
    noisy = scores + rng.normal(size=200)
    ranks = np.argsort(np.argsort(noisy))
    assert METRICS["pearson"](scores, noisy) == pytest.approx(np.corrcoef(scores, noisy)[0, 1])
    assert METRICS["spearman"](scores, noisy) == pytest.approx(np.corrcoef(scores, ranks)[0, 1])


@pytest.mark.parametrize("name", ["f1", "mcc", "pearson", "spearman"])
@pytest.mark.parametrize(
    ("answers", "predicted"),
    [([0, 1], [0, 0]), ([0, 0], [0, 1]), ([0, 0], [0, 0]), ([0], [0])],
)
def test_undefined_scores_are_zero_without_a_warning(name, answers, predicted):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compare([name], answers, predicted) == {name: 0.0}


def test_numbers_that_are_none_score_nothing():
    assert compare(["pearson"], [0.0, 1.0], [math.nan, 1.0]) == {"pearson": 0.0}


def test_labels_are_numbered_as_their_probabilities_are():
    examples = [TextExample("", label=number) for number in (2, 0, 1)]
    predictions = [
        {"label": label, "probabilities": {"b": 0.5, "a": 0.2, "c": 0.3}} for label in "cba"
    ]
    dataset = DATASETS["rte"]
    assert dataset.score(predictions, examples) == {"accuracy": 1.0}
    assert dataset.score(predictions[1:] + predictions[:1], examples) == {"accuracy": 0.0}
    choices = [{"choice": n} for n in (2, 0, 0)]
    assert DATASETS["race"].score(choices, examples) == pytest.approx({"accuracy": 2 / 3})


def test_scores_need_answers():
    examples = [TextExample("", label=1.0), TextExample("", label=None)]
    with pytest.raises(InputError, match="Example 1 has none"):
        DATASETS["sts-b"].score([{"score": 1.0}] * 2, examples)
