"""Rankings: rows of passages with their scores, the best first, and what combines them."""

from collections.abc import Sequence

import numpy as np

Ranking = list[tuple[int, float]]  # the row of a passage in its index, and its score
RANK_CONSTANT = 60  # of Cormack, Clarke and Büttcher, SIGIR 2009


def best(scores: np.ndarray, count: int, rows: np.ndarray | None = None) -> Ranking:
    """Return the `count` best scores; of equal ones, the lower row comes first.

    Args:
      scores: the scores [N].
      count: how many to return, or fewer if there are fewer.
      rows: the row of each score, by default its place.
    """
    count = min(count, len(scores))
    if not count:
        return []
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    places = np.flatnonzero(scores >= least)
    numbers = places if rows is None else rows[places]
    order = np.lexsort((numbers, -scores[places]))[:count]
    return [(int(numbers[i]), float(scores[places[i]])) for i in order]


def fused(rankings: Sequence[Ranking]) -> Ranking:
    """Return reciprocal rank fusion: the sum of 1 / (60 + rank) over the rankings, ranks from 1.

    A row that a ranking does not have gets nothing from it.
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, (row, _) in enumerate(ranking, start=1):
            scores[row] = scores.get(row, 0.0) + 1 / (RANK_CONSTANT + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))
