"""Standard errors over documents by hand, and how often a model at chance is called better."""

import math

import numpy as np
import pytest

from pretraining.evaluation.estimates import LEVEL, Estimate, above_chance, estimate


def test_documents_go_wrong_together():
    """Two documents of two rows and one of one; padding is in none. 5 of 10 are right."""
    correct, count = np.array([2, 1, 1, 0, 1, 0]), np.array([2, 2, 2, 2, 2, 0])
    documents = np.array([7, 7, 9, 9, 8, 5])
    # 3 - 0.5 * 4, 1 - 0.5 * 4 and 1 - 0.5 * 2: sqrt(3 / 2 * 2) / 10.
    found = estimate(correct, count, documents)
    assert found == Estimate(0.5, pytest.approx(math.sqrt(3) / 10), 10, 3)
    assert estimate(correct[:2], count[:2], documents[:2]) == Estimate(0.75, 0.0, 4, 1)


def test_verdict_is_plain():
    assert above_chance(Estimate(0.51, 0.05, 100, 100)).startswith("not above chance (+0.2")
    found = Estimate(0.6, 0.005, 10_000, 100)
    assert above_chance(found) == "above chance (+20.0 standard errors from 50 %)"
    # 8 of 10 labels are 1, as in foreign records.
    assert above_chance(Estimate(0.6, 0.04, 100, 100), 0.8).startswith("not above chance (-5.0")
    # Of three documents, the 97.5th percentile of t is 4.30; of many, 1.96.
    assert above_chance(Estimate(0.6, 0.024, 90, 3)).startswith("not above chance (+4.2")
    assert above_chance(Estimate(0.6, 0.023, 90, 3)).startswith("above chance (+4.3")
    assert above_chance(Estimate(0.52, 0.01, 9_000, 3_000)).startswith("above chance (+2.0")
    for shares in (Estimate(1.0, 0.0, 29, 29), Estimate(1.0, 0.0, 100, 1)):
        assert above_chance(shares) == "too few pairs or documents to judge"
    assert above_chance(Estimate(1.0, 0.0, 100, 2)) == "above chance"
    assert above_chance(Estimate(0.5, 0.0, 100, 2)) == "not above chance"


@pytest.mark.parametrize("together", [0.0, 0.1])
def test_a_model_at_chance_is_seldom_called_better(together: float):
    """4,000 times 40 documents of 50 pairs, which go right together or not.

    Of all pairs, half are right on average; the probability in a document has the variance
    `together` / 4. The share of verdicts must be LEVEL within three standard errors, and half of
    LEVEL more, because documents' shares are not normal.
    """
    rng, count = np.random.default_rng(0), 4_000
    spread = (1 / together - 1) / 2 if together else np.inf
    chances = rng.beta(spread, spread, [count, 40]) if together else np.full([count, 40], 0.5)
    right = rng.binomial(50, chances).astype(float)
    pairs, documents = np.full(40, 50.0), np.arange(40)
    verdicts = [above_chance(estimate(each, pairs, documents)) for each in right]
    rate = np.mean([verdict.startswith("above") for verdict in verdicts])
    tolerance = 3 * math.sqrt(LEVEL * (1 - LEVEL) / count)
    assert LEVEL - tolerance < rate < LEVEL + tolerance + LEVEL / 2
    if together:  # an error that counts pairs as independent would find far more
        distances = (right.mean(1) / 50 - 0.5) / math.sqrt(0.25 / 2000)
        assert np.mean(distances > 2) > 4 * LEVEL
