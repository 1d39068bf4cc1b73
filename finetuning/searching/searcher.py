"""Answers to queries: rankings by words and by vectors, and the passages that they name."""

import unicodedata
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from albert_tf.runtime.errors import InputError
from albert_tf.text.words import word, words_of
from finetuning.searching.passages import Passage
from finetuning.searching.rankings import Ranking, fused
from finetuning.searching.search_index import SearchIndex, shown_path
from finetuning.searching.vector_search import search_of
from finetuning.searching.word_postings import WordSearch

BOTH, VECTORS, WORDS = METHODS = ("both", "vectors", "words")
CANDIDATES = 100  # of each ranking, which are fused
_BIDI_CONTROLS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
RERANKED = 50  # the first passages, which a ranker sorts anew


class Result(NamedTuple):
    """A passage that was found.

    Attributes:
      rank: its place among the results, from 1.
      score: BM25, the cosine or, of both, the sum of reciprocal ranks; with a ranker, its score.
      passage: the passage.
      text: its text on one line, without characters that cannot be printed.
      marks: where words of the query begin and end in `text`.
    """

    rank: int
    score: float
    passage: Passage
    text: str
    marks: list[tuple[int, int]]

    @property
    def place(self) -> str:
        """The source with the line or, if it is unknown, the document and the character."""
        _, source, document, line, character = self.passage
        parts = [printable(shown_path(source)) + (f":{line}" if line else "")]
        if not line and document > 1:
            parts.append(f"document {document:,}")
        if not line and character:
            parts.append(f"character {character:,}")
        return ", ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """Return the result as an object of JSON; a line that is unknown is None."""
        _, source, document, line, character = self.passage
        return {
            "rank": self.rank,
            "score": self.score,
            "source": shown_path(source),
            "document": document,
            "line": line or None,
            "character": character,
            "text": self.text,
            "marks": [list(mark) for mark in self.marks],
        }


class Searcher:
    """Searches in an index.

    Args:
      index: the index.
      embed: the function from a query to its vector float32 [D]; None if only words are searched.
      rank: the function from a query and texts [N] to scores [N], as `albert_tf.load_ranker`
        returns it; None to leave the passages in their order.
      note: the function from a query to a note about its vector, which may be empty.

    Raises:
      InputError: FAISS is needed and not installed.
    """

    def __init__(
        self,
        index: SearchIndex,
        embed: Callable[[str], np.ndarray] | None,
        rank: Callable[[str, list[str]], np.ndarray] | None = None,
        note: Callable[[str], str] = lambda query: "",
    ) -> None:
        self.index = index
        self._embed, self._rank, self._note = embed, rank, note
        self._words = WordSearch([part.words for part in index.parts])
        if embed is not None:
            self._vectors = search_of([part.vectors for part in index.parts])

    def ranking(self, query: str, count: int, by: str = BOTH) -> Ranking:
        """Return the rows of the best passages with their scores.

        Of both, the first 100 (or `count`, if that is more) of words and of vectors are fused. A
        ranker sorts the first 50 (or `count`) anew.

        Args:
          query: the query.
          count: how many rows to return, if there are as many.
          by: one of `METHODS`.

        Raises:
          InputError: the query is empty.
        """
        require_text(query)
        if self._rank is None:
            return self._retrieved(query, count, by)
        rows = [row for row, _ in self._retrieved(query, max(count, RERANKED), by)]
        if not rows:
            return []
        scores = self._rank(query, [self.index.passage(row).text for row in rows])
        order = np.argsort(-np.asarray(scores), kind="stable")[:count]
        return [(rows[place], float(scores[place])) for place in order.tolist()]

    def _retrieved(self, query: str, count: int, by: str) -> Ranking:
        if by == WORDS:
            return self._words.ranking(query, count)
        assert self._embed is not None
        vector = self._embed(query)
        if by == VECTORS:
            return self._vectors.ranking(vector, count)
        depth = max(count, CANDIDATES)
        both = self._words.ranking(query, depth), self._vectors.ranking(vector, depth)
        return fused(both)[:count]

    def note(self, query: str, by: str = BOTH) -> str:
        """Return a note on what a search leaves out of a query, or else an empty string."""
        return "" if by == WORDS else self._note(query)

    def results(self, query: str, count: int, by: str = BOTH) -> list[Result]:
        """Return the best passages; the arguments and errors are those of `ranking`."""
        words = self._words.telling_words(query)
        results = []
        for rank, (row, score) in enumerate(self.ranking(query, count, by), start=1):
            passage = self.index.passage(row)
            text = printable(passage.text)
            results.append(Result(rank, score, passage, text, marks_of(text, words)))
        return results


def require_text(query: str) -> None:
    """Check that a query has text.

    Raises:
      InputError: it is empty.
    """
    if not query.strip():
        raise InputError(f"The query must have text. Received: {query!r}. Ask with some words.")


def printable(text: str) -> str:
    """Return a text on one line, with U+FFFD in place of control characters.

    Joiners stay, soft hyphens are dropped, and bidirectional embeddings, overrides and isolates are
    replaced too.
    """
    line = " ".join(text.replace("\u00ad", "").split())
    return line if line.isprintable() else "".join(c if _is_shown(c) else "\ufffd" for c in line)


def _is_shown(char: str) -> bool:
    return char.isprintable() or (unicodedata.category(char) == "Cf" and char not in _BIDI_CONTROLS)


def marks_of(text: str, words: set[str]) -> list[tuple[int, int]]:
    """Return where words, in lower case, begin and end in a text."""
    return [each.span() for each in word().finditer(text) if words.intersection(words_of(each[0]))]
