"""Metrics of rankings, as trec_eval defines them."""

import math
from collections.abc import Mapping, Sequence

METRICS = ("ndcg_at_10", "mrr_at_10", "map", "recall_at_10", "recall_at_100")
OF_LISTS = ("map", "mrr", "ndcg_at_10")  # of candidates, all of which are ranked
_CUT = 10


def score_rankings(
    rankings: Sequence[Sequence[str]],
    relevant: Sequence[Mapping[str, float]],
    names: Sequence[str] = METRICS,
) -> dict[str, float]:
    """Return the means over the queries of nDCG@10, MRR@10, MAP, and recall@10 and @100, or others.

    They are trec_eval's ndcg_cut_10, recip_rank of the first ten, map, recall_10 and recall_100,
    and `mrr` is recip_rank: the gain of a document is its grade, and those with a positive grade
    are relevant. A relevant document that a ranking lacks counts as not found.

    Args:
      rankings: for each query the ids of documents, the best first.
      relevant: for each query id -> grade, at least one of them positive.
      names: the metrics.
    """
    rows = [score_ranking(*pair) for pair in zip(rankings, relevant, strict=True)]
    return {name: math.fsum(row[name] for row in rows) / len(rows) for name in names}


def score_ranking(ranking: Sequence[str], grades: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of a query; see `score_rankings`."""
    gains = {name: grade for name, grade in grades.items() if grade > 0}
    places = [place for place, name in enumerate(ranking, 1) if name in gains]
    ideal = _discounted(sorted(gains.values(), reverse=True)[:_CUT])
    dcg = _discounted([gains.get(name, 0.0) for name in ranking[:_CUT]])
    precisions = [number / place for number, place in enumerate(places, 1)]
    return {
        "ndcg_at_10": dcg / ideal,
        "mrr_at_10": 1 / places[0] if places and places[0] <= _CUT else 0.0,
        "mrr": 1 / places[0] if places else 0.0,
        "map": math.fsum(precisions) / len(gains),
        "recall_at_10": sum(place <= 10 for place in places) / len(gains),
        "recall_at_100": sum(place <= 100 for place in places) / len(gains),
    }


def _discounted(gains: Sequence[float]) -> float:
    return math.fsum(gain / math.log2(place + 1) for place, gain in enumerate(gains, 1))
