"""Metrics of rankings by hand, and beside trec_eval on generated cases."""

import math
import random

import numpy as np
import pytest

from finetuning.datasets.scores.ranking_metrics import (
    METRICS,
    OF_LISTS,
    score_ranking,
    score_rankings,
)

LOG3 = math.log2(3)


def test_a_query_by_hand():
    """Relevant documents of the grades 3 and 1 at the places 2 and 4, and one that is not found."""
    found = score_ranking(["x", "a", "y", "b"], {"a": 3, "b": 1, "c": 2, "x": 0, "y": -1})
    ideal = 3 + 2 / LOG3 + 1 / 2
    assert found["ndcg_at_10"] == pytest.approx((3 / LOG3 + 1 / math.log2(5)) / ideal)
    assert found["mrr_at_10"] == found["mrr"] == 1 / 2
    assert found["map"] == pytest.approx((1 / 2 + 2 / 4) / 3)
    assert found["recall_at_10"] == found["recall_at_100"] == pytest.approx(2 / 3)


def test_documents_behind_the_cut_do_not_count():
    ranking = [str(number) for number in range(200)]
    found = score_ranking(ranking, {"10": 1, "150": 1})
    assert found["ndcg_at_10"] == found["mrr_at_10"] == found["recall_at_10"] == 0
    assert found["recall_at_100"] == 1 / 2 and found["mrr"] == 1 / 11
    assert found["map"] == pytest.approx((1 / 11 + 2 / 151) / 2)


def test_more_relevant_documents_than_the_cut_holds():
    ranking = [str(number) for number in range(10)]
    found = score_ranking(ranking, {str(number): 1 for number in range(20)})
    assert found["ndcg_at_10"] == 1 and found["recall_at_10"] == 1 / 2


def test_the_mean_over_queries():
    found = score_rankings([["a"], ["b"]], [{"a": 1}, {"a": 1}])
    assert found == dict.fromkeys(METRICS, 0.5)
    assert score_rankings([["a"]], [{"a": 1}], OF_LISTS) == dict.fromkeys(OF_LISTS, 1.0)


@pytest.mark.slow
def test_generated_cases_are_scored_as_by_trec_eval():
    pytrec_eval = pytest.importorskip("pytrec_eval")
    from albert_tf.tasks.embedding.examples import Corpus, SearchExample
    from albert_tf.tasks.embedding.kind import ranking

    names = {
        "ndcg_at_10": "ndcg_cut_10",
        "map": "map",
        "mrr": "recip_rank",
        "recall_at_10": "recall_10",
        "recall_at_100": "recall_100",
    }
    rng = random.Random(0)
    for _ in range(200):
        ids = [str(number) for number in rng.sample(range(1000), rng.randint(1, 100))]
        scores = [rng.choice((0.0, 0.25, 0.5, rng.random())) for _ in ids]
        grades = {each: rng.choice((0, 1, 2, 5)) for each in rng.sample(ids, (len(ids) + 1) // 2)}
        grades |= {"missing": 1}
        evaluator = pytrec_eval.RelevanceEvaluator({"q": grades}, {*names.values()})
        wanted = evaluator.evaluate({"q": dict(zip(ids, scores, strict=True))})["q"]
        search = SearchExample("q", corpus=Corpus(ids, ids))
        ranked = [name for name, _ in ranking(search, np.array(scores))]
        found = score_ranking(ranked, grades)
        reciprocal = wanted["recip_rank"]  # of the first relevant document
        assert found["mrr_at_10"] == pytest.approx(reciprocal * (reciprocal >= 1 / 10), abs=1e-9)
        for ours, theirs in names.items():
            assert found[ours] == pytest.approx(wanted[theirs], abs=1e-9), ours
