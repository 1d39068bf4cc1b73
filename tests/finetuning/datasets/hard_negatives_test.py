"""Hard negatives of pairs: which texts are equal, who ranks, and what is too near."""

import numpy as np
import pytest

from albert_tf.tasks.embedding.examples import ContrastExample
from finetuning.datasets.embeddings.hard_negatives import hard_negatives, pool_of

PAIRS = [
    ContrastExample("Who won?", "the home team", negatives=("a red ball",)),
    ContrastExample("where", "at home"),
    ContrastExample("who WON", "our team"),
    ContrastExample("At home!", "The home team."),
    ContrastExample("?", "!"),
]


def test_texts_with_the_same_words_are_one():
    pool = pool_of(PAIRS, ["our team.", "their team", "..."])
    assert pool.queries == ["Who won?", "where", "At home!", "?"]
    assert pool.query_of == [0, 1, 0, 2, 3]
    assert pool.candidates == [
        *("the home team", "a red ball", "at home", "our team", "!", "their team", "...")
    ]
    assert pool.positives == [[0, 3], [2], [0], [4]]
    assert pool.known == [[0, 1, 3], [2], [2, 0], [4]]


def test_pairs_belong_together_both_ways():
    pool = pool_of([ContrastExample(*pair) for pair in ("ab", "bc", "ca")])
    assert (pool.queries, pool.candidates) == (["a", "b", "c"], ["b", "c", "a"])
    assert [sorted(rows) for rows in pool.known] == [[0, 1, 2]] * 3


A, B = (np.array(values, np.float32) for values in ([[9, 5, 5, 7, 8]], [[0, 1, -3, 2, 1]]))
ONE = [ContrastExample("q", "0"), ContrastExample("q", "1")]  # the positives are 0 and 1


def mined(scores: dict, by: str, count: int, **given) -> list[tuple[list[int], int]]:
    scorers = {name: lambda rows, found=found: found[rows] for name, found in scores.items()}
    pool = pool_of(given.pop("pairs", ONE), "234")
    return [*hard_negatives(pool, scorers, by, count, **given)]


@pytest.mark.parametrize(
    ("by", "count", "rows"),
    [
        ("a", 2, [4, 3]),  # 8, 7
        ("a", 9, [4, 3, 2]),
        ("b", 2, [3, 4]),
        ("ab", 3, [4, 3, 2]),  # 4 of a, 3 of b; then 3 and 4 are known, and both have 2 left
        ("ba", 1, [3]),
    ],
)
def test_rankings_take_turns(by, count, rows):
    assert mined({"a": A, "b": B}, by, count) == [(rows, 0)]


def test_the_earlier_of_equals_and_no_candidate_without_a_score():
    scores = np.array([[9, 9, 4, 4, -np.inf]])
    assert mined({"a": scores}, "a", 1) == [([2], 0)]
    assert mined({"a": scores}, "a", 3) == [([2, 3], 0)]


@pytest.mark.parametrize(
    ("judged", "margin", "rows", "near"),
    [
        ([0.9, 0.8, 0.81, 0.8, 0.5], 0.0, [3, 4], 1),  # the least positive has 0.8
        ([0.9, 0.8, 0.5, 0.76, 0.761], 0.05, [3, 2], 1),
        ([0.9, -0.4, -0.41, -0.43, -0.5], 0.05, [3, 4], 1),  # at most -0.42
        ([0.1, 0.1, 0.2, 0.3, 0.4], 0.05, [], 3),
    ],
)
def test_candidates_above_the_margin_are_too_near(judged, margin, rows, near):
    judged = np.array([judged])
    found = mined({"b": judged}, "b", 5, judge="b", margin=margin)
    assert found == [(rows, near)]
    words = np.array([[0, 0, 3, 1, 2]])
    by_words = sorted(rows, key=lambda row: -words[0, row])
    both = {"a": words, "b": judged}
    assert mined(both, "a", 5, judge="b", margin=margin) == [(by_words, near)]


@pytest.mark.parametrize("cells", [1, 12, 10**6])
def test_parts_give_the_same(cells):
    """Seven queries, three candidates besides; the parts have 1, 1 and 7 of them."""
    pairs = [ContrastExample(f"q{i}", f"p{i}") for i in range(7)]
    scores = np.random.default_rng(0).normal(size=[7, 10])
    found = mined({"a": scores}, "a", 4, pairs=pairs, cells=cells)
    wanted = []
    for row, values in enumerate(scores):
        order = [int(each) for each in np.argsort(-values) if each != row]
        wanted.append((order[:4], 0))
    assert found == wanted
