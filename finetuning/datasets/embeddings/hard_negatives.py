"""Hard negatives: texts that resemble the second text of a pair, but do not belong to the first.

Texts are equal here if their words are, in lower case.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from albert_tf.tasks.examples import TextExample
from data.corpora.passage_pairs import comparable

CELLS = 2**23  # scores of queries and candidates that are in memory at a time
Scorer = Callable[[slice], np.ndarray]  # rows of queries -> scores [queries, candidates]


class _Texts:
    """Different texts, numbered in their order."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._rows: dict[str, int] = {}

    def add(self, text: str) -> int:
        row = self._rows.setdefault(_key(text), len(self.texts))
        if row == len(self.texts):
            self.texts.append(text)
        return row

    def rows_of(self, text: str) -> list[int]:
        return [self._rows[key]] if (key := _key(text)) in self._rows else []


def _key(text: str) -> str:
    return comparable(text) or text


@dataclasses.dataclass(frozen=True)
class Pool:
    """The different texts of pairs, and those that can be negatives.

    Attributes:
      queries: the first texts.
      candidates: the second texts, the given negatives, and the other texts.
      query_of: the row in `queries` of each pair's first text.
      positives: for each query, the rows in `candidates` of its second texts.
      known: for each query, the rows that are no candidates: besides its second texts, those of
        which it is the second text, its given negatives and the query itself.
    """

    queries: Sequence[str]
    candidates: Sequence[str]
    query_of: Sequence[int]
    positives: Sequence[Sequence[int]]
    known: Sequence[Sequence[int]]


def pool_of(pairs: Sequence[TextExample], others: Iterable[str] = ()) -> Pool:
    """Return the texts of pairs, with `others` as further candidates."""
    queries, candidates = _Texts(), _Texts()
    query_of = [queries.add(pair.first) for pair in pairs]
    texts = [[candidates.add(text) for text in pair.texts[1:]] for pair in pairs]
    for text in others:
        candidates.add(text)
    positives: list[list[int]] = [[] for _ in queries.texts]
    known = [candidates.rows_of(query) for query in queries.texts]
    for query, (second, *negatives) in zip(query_of, texts, strict=True):
        positives[query].append(second)
        known[query] += [second, *negatives]
    for pair in pairs:  # they belong together both ways
        for row in queries.rows_of(str(pair.second)):
            known[row] += candidates.rows_of(pair.first)
    return Pool(queries.texts, candidates.texts, query_of, positives, known)


def hard_negatives(
    pool: Pool,
    scorers: Mapping[str, Scorer],
    by: Sequence[str],
    count: int,
    judge: str | None = None,
    margin: float = 0.0,
    cells: int = CELLS,
) -> Iterator[tuple[list[int], int]]:
    """Yield for each query the rows of its negatives, the best first, and how many are too near.

    Several rankings take turns. Of equal scores, the earlier candidate comes first. Candidates of
    the score minus infinity are none.

    Args:
      pool: the texts.
      scorers: name -> scores.
      by: the names of those that rank.
      count: the most negatives of a query.
      judge: the name of the scores by which a candidate is too near: above that of the query's
        second text, or the least of several, less `margin` times its absolute value. None: no
        candidate is.
      margin: see `judge`.
      cells: the most scores in memory at a time.
    """
    step = max(1, cells // len(pool.candidates))
    for begin in range(0, len(pool.queries), step):
        rows = slice(begin, min(begin + step, len(pool.queries)))
        scores = {name: scorer(rows) for name, scorer in scorers.items()}
        for row in range(rows.start, rows.stop):
            of_query = {name: matrix[row - begin] for name, matrix in scores.items()}
            near: np.ndarray = np.zeros(len(pool.candidates), bool)
            if judge is not None:
                least = of_query[judge][pool.positives[row]].min()
                near = of_query[judge] > least - margin * abs(least)
            near[pool.known[row]] = False
            rankings = []
            for name in by:
                ranked = np.where(near, -np.inf, of_query[name])
                ranked[pool.known[row]] = -np.inf
                rankings.append(_best(ranked, count))
            turns = itertools.chain.from_iterable(itertools.zip_longest(*rankings))
            chosen = [number for number in dict.fromkeys(turns) if number is not None]
            yield chosen[:count], int(near.sum())


def _best(scores: np.ndarray, count: int) -> list[int]:
    """Return the rows of the highest scores above minus infinity, the best first."""
    count = min(count, len(scores))
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    rows = np.flatnonzero((scores >= least) & (scores > -np.inf))
    return rows[np.argsort(-scores[rows], kind="stable")][:count].tolist()
