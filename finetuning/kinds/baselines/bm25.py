"""BM25 (Robertson and Zaragoza, 2009), with k1 0.9 and b 0.4."""

import functools
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from albert_tf.text.words import combining_marks

_K1, _B = 0.9, 0.4  # of Anserini, and of BEIR's baseline
Scorer = Callable[[Sequence[str]], np.ndarray]  # queries -> float64 [queries, documents]


def bm25(documents: Sequence[str]) -> Scorer:
    """Return a function from queries to the BM25 scores of the documents.

    A word that a query repeats counts each time.
    """
    from scipy.sparse import csr_matrix

    words: dict[str, int] = {}
    counts = _counts(documents, words)
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    frequency = np.asarray((counts > 0).sum(axis=0)).ravel()
    idf = rarity(len(documents), frequency)
    rows, columns = counts.nonzero()
    weights = weights_of(counts.data, lengths[rows], lengths.mean()) * idf[columns]
    weighted = csr_matrix((weights, (rows, columns)), counts.shape).T

    def scores(queries: Sequence[str]) -> np.ndarray:
        return (_counts(queries, dict(words))[:, : len(words)] @ weighted).toarray()

    return scores


def rarity(documents: int, frequency: Any) -> Any:
    """Return the inverse document frequency ln(1 + (N - n + 0.5) / (n + 0.5)) of words.

    Args:
      documents: N, the number of documents.
      frequency: n, the number of those with the word; an array for several words.
    """
    return np.log1p((documents - frequency + 0.5) / (frequency + 0.5))


def weights_of(counts: np.ndarray, lengths: np.ndarray, mean_length: float) -> np.ndarray:
    """Return the weights of words in documents, which their rarity is to be multiplied with.

    Args:
      counts: how often each word is in its document.
      lengths: the words of that document.
      mean_length: the mean of all documents.
    """
    norm = _K1 * (1 - _B + _B * lengths / max(1.0, mean_length))
    return counts * (_K1 + 1) / (counts + norm)


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case: letters and digits with their combining marks."""
    if not text.isascii():  # as composed characters, so that accents are found either way
        text = unicodedata.normalize("NFC", text)
    return word().findall(text.lower())


@functools.cache
def word() -> re.Pattern[str]:
    """Return the pattern of a word."""
    return re.compile(rf"\w[\w{combining_marks()}]*")


def _counts(texts: Sequence[str], words: dict[str, int]) -> Any:
    """Return the counts of words, sparse [texts, words]; new words are added to `words`."""
    from scipy.sparse import csr_matrix

    found = [[words.setdefault(word, len(words)) for word in words_of(text)] for text in texts]
    rows: np.ndarray = np.repeat(np.arange(len(texts)), [len(each) for each in found])
    columns = np.array([word for each in found for word in each], np.int64)
    return csr_matrix((np.ones(len(rows)), (rows, columns)), (len(texts), len(words)))
