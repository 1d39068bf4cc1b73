"""Metrics of label sets by hand and against scikit-learn's; thresholds against every other one."""

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.examples import TextExample
from finetuning.datasets.scores.multi_label_metrics import (
    average_precision,
    best_threshold,
    best_thresholds,
    macro_f1,
    micro_f1,
    score_label_sets,
)


@st.composite
def cases(draw):
    """Answers bool [N, C], probabilities float [N, C] with ties, thresholds [C]."""
    shape = draw(st.integers(1, 30)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    levels = draw(st.sampled_from([2, 5, 1000]))
    answers = rng.random(shape) < draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    return answers, rng.integers(1, levels + 1, shape) / (levels + 1), rng.random(shape[1])


@settings(deadline=None, max_examples=200)
@given(cases())
def test_scores_are_scikit_learn_s(case):
    answers, probabilities, thresholds = case
    predicted = probabilities > thresholds
    kinds = {"macro": macro_f1, "micro": micro_f1}
    for average, score in kinds.items():
        # A column more keeps scikit-learn from reading one label as two classes.
        wanted = f1_score(
            *(np.pad(each, [(0, 0), (0, 1)]) for each in (answers, predicted)),
            average=average,
            labels=range(answers.shape[1]),
            zero_division=0.0,
        )
        assert score(answers, predicted) == pytest.approx(wanted)
    columns = [i for i in range(answers.shape[1]) if answers[:, i].any()]
    values = [average_precision_score(answers[:, i], probabilities[:, i]) for i in columns]
    # scikit-learn warns of labels that do not occur, and counts them as 0.
    assert average_precision(answers, probabilities) == pytest.approx(
        np.sum(values) / answers.shape[1]
    )


def f1_at(answers: np.ndarray, probabilities: np.ndarray, threshold: float) -> float:
    predicted = probabilities > threshold
    return 2 * (answers & predicted).sum() / max(1, answers.sum() + predicted.sum())


@settings(deadline=None, max_examples=200)
@given(cases())
def test_no_other_threshold_is_better(case):
    answers, probabilities, _ = (each.ravel() for each in case)
    found = best_threshold(probabilities, answers)
    others = [*np.unique(probabilities), 0.0, 1.0]
    best = max(f1_at(answers, probabilities, other) for other in others)
    assert f1_at(answers, probabilities, found) == best and 0 <= found <= 1
    if answers.any():  # midway between two neighbors, of which the lower may be 0
        middles = [(a + b) / 2 for a, b in itertools.pairwise(sorted({0.0, *probabilities}))]
        assert any(found == middle for middle in middles)


@pytest.mark.parametrize(
    ("probabilities", "answers", "threshold"),
    [
        ([0.9, 0.8, 0.3, 0.1], [1, 1, 0, 0], 0.55),  # all right
        ([0.9, 0.8, 0.3, 0.1], [1, 0, 1, 0], 0.2),  # F1 of 1, 2, 3, 4: 2/3, 1/2, 4/5, 2/3
        ([0.9, 0.8, 0.3, 0.1], [1, 1, 1, 1], 0.05),  # all of them
        ([0.8, 0.8, 0.8, 0.4], [1, 0, 0, 0], 0.6),  # equal ones are on one side
        ([0.9, 0.5, 0.4, 0.2], [1, 0, 0, 1], 0.7),  # F1 2/3 of 1 and of 4: the highest
        ([0.9, 0.1], [0, 0], 0.5),  # undefined
        ([1.0, 0.0, 0.0, 1.0], [1, 1, 0, 1], 0.5),  # F1 4/5; of all it is 6/7, but 0 is above none
    ],
)
def test_thresholds_by_hand(probabilities, answers, threshold):
    found = best_threshold(np.array(probabilities), np.array(answers, bool))
    assert found == pytest.approx(threshold)


def test_between_neighboring_floats_the_lower_one_is_the_threshold():
    low = 0.3
    high = float(np.nextafter(low, 1))
    threshold = best_threshold(np.array([high, low]), np.array([True, False]))
    assert threshold == low and high > threshold


def test_a_threshold_for_all_or_for_each():
    """Label 0 is right above 0.5; label 1 above 0.25; label 2 never occurs.

    For all together, in order: 0.9 right, 0.6 wrong, 0.4 wrong, 0.35 right, 0.3 right, 0.2 wrong:
    F1 is 2/4, 2/5, 2/6, 4/7, 6/8, 6/9. Fewer than five texts have the threshold of all.
    """
    probabilities = np.array([[0.9, 0.3, 0.6], [0.4, 0.35, 0.2]])
    answers = np.array([[1, 1, 0], [0, 1, 0]], bool)
    assert best_thresholds(probabilities, answers, False) == pytest.approx((0.25,) * 3)
    assert best_thresholds(probabilities, answers, True) == pytest.approx((0.25,) * 3)
    probabilities, answers = np.repeat(probabilities, 5, axis=0), np.repeat(answers, 5, axis=0)
    each = best_thresholds(probabilities, answers, True)
    assert each == pytest.approx((0.65, 0.15, 0.25))
    each = best_thresholds(probabilities[1:], answers[1:], True)  # label 0 in four texts
    assert each[0] == each[2] == best_thresholds(probabilities[1:], answers[1:], False)[0]


def test_many_thresholds_are_fast():
    """A million decisions are sorted, not compared with each other."""
    rng = np.random.default_rng(0)
    probabilities = rng.random([50_000, 20])
    answers = rng.random([50_000, 20]) < probabilities
    assert 0.2 < best_threshold(probabilities.ravel(), answers.ravel()) < 0.45  # 1/3 is best


def prediction(**probabilities: float) -> dict:
    labels = [name for name, value in probabilities.items() if value > 0.5]
    return {"labels": labels, "probabilities": probabilities}


def test_scores_of_predictions_by_hand():
    """Label a: 1 of 2 found, none wrong: F1 2/3. Label b: never right, once given: 0. c: 0.

    Average precision of a: ranks 1 and 3: (1 + 2/3) / 2; b and c occur nowhere.
    """
    predictions = [
        prediction(a=0.9, b=0.8, c=0.1),
        prediction(a=0.3, b=0.2, c=0.1),
        prediction(a=0.2, b=0.2, c=0.1),
    ]
    examples = [TextExample("", label=label) for label in ((0,), (), (0,))]
    assert score_label_sets(predictions, examples) == pytest.approx(
        {"macro_f1": 2 / 9, "micro_f1": 2 / 4, "average_precision": 5 / 18}
    )
    with pytest.raises(InputError, match="Example 1 has none"):
        score_label_sets(predictions[:2], [examples[0], TextExample("")])


def test_no_labels_at_all():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = score_label_sets([prediction(a=0.1)], [TextExample("", label=())])
    assert found == {"macro_f1": 0.0, "micro_f1": 0.0, "average_precision": 0.0}
