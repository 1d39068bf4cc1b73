"""Runs of adjacent pieces that, each joined into one piece, shorten a text most."""

import heapq
from collections import Counter
from collections.abc import Container, Iterator, Mapping

_MAX_CHARACTERS = 16  # of a piece, as in sentencepiece's own training
_POOL = 20  # candidates for each piece that is asked for, those that save most at first


class Shortening:
    """The candidates for new pieces, the one that saves most pieces first.

    Greedy: each candidate is joined everywhere before the next one is chosen. What a candidate
    saves can only fall when others are joined. So its saving is computed again only when it is the
    largest of those known, and the choice is still exact.

    Args:
      runs: runs of pieces, as strings, with their numbers in a text.
      known: the pieces that exist.
      size: the number of candidates that will be taken, about.
      min_count: the number of occurrences that a candidate needs.
    """

    def __init__(
        self, runs: Mapping[tuple[str, ...], int], known: Container[str], size: int, min_count: int
    ) -> None:
        self._texts = ["".join(run) for run in runs]
        self._counts = list(runs.values())
        self._cuts = [_cuts(run) for run in runs]
        self._min_count = min_count
        pool = _savings(runs, known)
        most = heapq.nsmallest(
            _POOL * (size + 50), ((-saved, text) for text, saved in pool.items())
        )
        self._heap = most  # sorted, so a heap
        self._runs_with: dict[str, list[int]] = {text: [] for _, text in most}
        for number, run in enumerate(runs):
            for text in {text for text, _ in _joined(run)}:
                if text in self._runs_with:
                    self._runs_with[text].append(number)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Yield candidates with their numbers of occurrences."""
        while self._heap:
            _, text = heapq.heappop(self._heap)
            saved, uses = self._saving(text)
            if uses < self._min_count:
                continue
            if self._heap and (-saved, text) > self._heap[0]:
                heapq.heappush(self._heap, (-saved, text))
                continue
            self._join(text)
            yield text, uses

    def _saving(self, text: str) -> tuple[int, int]:
        """Return how many pieces a candidate saves now, and its number of occurrences."""
        saved = uses = 0
        for number in self._runs_with[text]:
            for first, last in self._occurrences(number, text):
                saved += self._counts[number] * (last - first - 1)
                uses += self._counts[number]
        return saved, uses

    def _join(self, text: str) -> None:
        for number in self._runs_with.pop(text):
            for first, last in reversed(list(self._occurrences(number, text))):
                del self._cuts[number][first + 1 : last]

    def _occurrences(self, number: int, text: str) -> Iterator[tuple[int, int]]:
        """Yield the indices of the cuts around each occurrence that consists of several pieces."""
        run, cuts = self._texts[number], self._cuts[number]
        begin = run.find(text)
        while begin >= 0:
            end = begin + len(text)
            fits = begin in cuts and end in cuts
            if fits and (last := cuts.index(end)) - (first := cuts.index(begin)) > 1:
                yield first, last
            begin = run.find(text, end if fits else begin + 1)


def _cuts(run: tuple[str, ...]) -> list[int]:
    """Return the offsets at which the pieces of a run begin, and its length."""
    cuts = [0]
    for piece in run:
        cuts.append(cuts[-1] + len(piece))
    return cuts


def _joined(run: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Yield each candidate of a run, and how many pieces it saves there."""
    for first in range(len(run) - 1):
        text = run[first]
        for saved, piece in enumerate(run[first + 1 :], start=1):
            text += piece
            if len(text) > _MAX_CHARACTERS:
                break
            yield text, saved


def _savings(runs: Mapping[tuple[str, ...], int], known: Container[str]) -> Counter[str]:
    savings: Counter[str] = Counter()
    for run, count in runs.items():
        for text, saved in _joined(run):
            if text not in known:
                savings[text] += count * saved
    return savings
