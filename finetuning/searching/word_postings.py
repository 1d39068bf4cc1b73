"""The words of passages as an inverted index on disk, and BM25 by it.

Of each word, the index has the passages that contain it, with how often. A query reads these
alone. Files: words.txt, the words, one a line; posting_begins.npy, int64 [V + 1], where the
postings of a word begin; posting_rows.npy and posting_counts.npy, int32 [P], the rows of passages
and the counts; lengths.npy, int32 [N], the words of each passage.
"""

import array
import collections
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from albert_tf.text.words import words_of
from finetuning.kinds.baselines.bm25 import rarity, weights_of
from finetuning.searching.rankings import Ranking, best

WORDS = "words.txt"
BEGINS, ROWS, COUNTS, LENGTHS = (
    f"{name}.npy" for name in ("posting_begins", "posting_rows", "posting_counts", "lengths")
)
FILES = (WORDS, BEGINS, ROWS, COUNTS, LENGTHS)
LARGE = 2**20  # bytes, of a file that is mapped
_COMMON, _FEW = 0.2, 20  # a word is common from this share of passages, if they are not few


class WordCounter:
    """The words of the passages that are added, in 8 bytes for each different word of a passage."""

    def __init__(self) -> None:
        self._words: dict[str, int] = {}
        self._ids, self._counts = array.array("i"), array.array("i")
        self._ends, self._lengths = array.array("q", [0]), array.array("i")

    def add(self, text: str) -> None:
        """Count the words of the next passage."""
        words = words_of(text)
        for word, count in collections.Counter(words).items():
            self._ids.append(self._words.setdefault(word, len(self._words)))
            self._counts.append(count)
        self._ends.append(len(self._ids))
        self._lengths.append(len(words))

    def write(self, folder: str) -> None:
        """Write the files of the index."""
        from scipy.sparse import csr_matrix

        parts = [np.frombuffer(array, array.typecode) for array in (self._counts, self._ids)]
        shape = (len(self._lengths), len(self._words))
        matrix = csr_matrix((*parts, np.frombuffer(self._ends, np.int64)), shape).tocsc()
        with open(os.path.join(folder, WORDS), "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{word}\n" for word in self._words)
        for name, values, dtype in (
            (BEGINS, matrix.indptr, np.int64),
            (ROWS, matrix.indices, np.int32),
            (COUNTS, matrix.data, np.int32),
            (LENGTHS, self._lengths, np.int32),
        ):
            np.save(os.path.join(folder, name), np.asarray(values, dtype))


def load_array(path: str) -> np.ndarray:
    """Return the array of a .npy file of an index, mapped from the file if it is large.

    Each mapping keeps a file open, and an index that is updated often has many small parts.
    """
    return np.load(path, mmap_mode="r" if os.path.getsize(path) > LARGE else None)


class WordPostings:
    """The index that a `WordCounter` has written to a folder, of the passages that are left.

    Args:
      folder: the folder.
      is_left: which of its passages are left, bool; the N that are get the numbers from 0.

    Attributes:
      lengths: the words of each passage, int32 [N].
    """

    def __init__(self, folder: str, is_left: np.ndarray) -> None:
        with open(os.path.join(folder, WORDS), encoding="utf-8", newline="\n") as file:
            self._columns = {word.rstrip("\n"): column for column, word in enumerate(file)}
        self._begins, self._rows, self._counts, lengths = (
            load_array(os.path.join(folder, name)) for name in (BEGINS, ROWS, COUNTS, LENGTHS)
        )
        self.lengths = lengths[is_left]
        self._is_left, self._numbers = is_left, np.cumsum(is_left, dtype=np.int32) - 1

    def of(self, word: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of the passages with a word, and how often they have it."""
        column = self._columns.get(word)
        if column is None:
            return self._rows[:0], self._counts[:0]
        part = slice(int(self._begins[column]), int(self._begins[column + 1]))
        rows, counts = self._rows[part], self._counts[part]
        is_left = self._is_left[rows]
        return self._numbers[rows[is_left]], counts[is_left]


class WordSearch:
    """BM25 over the passages of several indexes, whose rows follow each other."""

    def __init__(self, parts: Sequence[WordPostings]) -> None:
        self._parts = parts
        sizes = [len(part.lengths) for part in parts]
        self._offsets = [0, *np.cumsum(sizes).tolist()]
        words = sum(int(part.lengths.sum(dtype=np.int64)) for part in parts)
        self._mean_length = words / max(1, self._offsets[-1])

    def ranking(self, query: str, count: int) -> Ranking:
        """Return the `count` best passages that share a word with the query."""
        scores: np.ndarray = np.zeros(self._offsets[-1])
        for word, times in collections.Counter(words_of(query)).items():
            postings = [part.of(word) for part in self._parts]
            idf = rarity(len(scores), sum(len(rows) for rows, _ in postings))
            for part, offset, (rows, counts) in self._zipped(postings):
                weights = weights_of(counts, part.lengths[rows], self._mean_length)
                scores[offset + rows] += times * idf * weights
        rows = np.flatnonzero(scores)
        return best(scores[rows], count, rows)

    def _zipped(self, postings: Iterable[Any]) -> Iterable[tuple[WordPostings, int, Any]]:
        return zip(self._parts, self._offsets[:-1], postings, strict=True)

    def telling_words(self, query: str) -> set[str]:
        """Return the words of a query that are worth marking in a passage.

        Those that at least 20 and a fifth of all passages have are left out, if there are others.
        """
        words = set(words_of(query))
        rows = {word: sum(len(part.of(word)[0]) for part in self._parts) for word in words}
        most = max(_FEW, _COMMON * self._offsets[-1])
        rare = {word for word in words if 0 < rows[word] < most}
        return rare or words
