"""BM25 (Robertson and Zaragoza, 2009), with k1 0.9 and b 0.4."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from albert_tf.text.words import words_of

_K1, _B = 0.9, 0.4  # of Anserini, and of BEIR's baseline


class WordScorer:
    """Scores that are sums over the words that a query and a document share.

    Args:
      documents: the weights of words, sparse [documents, words].
      vectors: the function from queries to their weights, sparse [queries, words].
    """

    def __init__(self, documents: Any, vectors: Callable[[Sequence[str]], Any]) -> None:
        self._documents, self._vectors = documents, vectors
        self._by_word = documents.T.tocsr()  # else each product would convert it

    def __call__(self, queries: Sequence[str]) -> np.ndarray:
        """Return the scores of all documents, float64 [queries, documents]."""
        return (self._vectors(queries) @ self._by_word).toarray()

    def of_pairs(self, queries: Sequence[str], rows: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Return the scores of some documents for each query, float64 [rows]."""
        counts = np.array([len(each) for each in rows])
        query_of: np.ndarray = np.repeat(np.arange(len(queries)), counts)
        documents = self._documents[np.concatenate([[], *rows]).astype(np.int64)]
        products = self._vectors(queries)[query_of].multiply(documents)
        return np.split(np.asarray(products.sum(axis=1)).ravel(), np.cumsum(counts)[:-1])


def bm25(documents: Sequence[str]) -> WordScorer:
    """Return the BM25 scores of documents; a word that a query repeats counts each time."""
    from scipy.sparse import csr_matrix

    words: dict[str, int] = {}
    counts = _counts(documents, lambda word: words.setdefault(word, len(words)), words)
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    frequency = np.asarray((counts > 0).sum(axis=0)).ravel()
    idf = rarity(len(documents), frequency)
    rows, columns = counts.nonzero()
    weights = weights_of(counts.data, lengths[rows], lengths.mean()) * idf[columns]
    weighted = csr_matrix((weights, (rows, columns)), counts.shape)
    return WordScorer(weighted, lambda queries: _counts(queries, words.get, words))


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


def _counts(
    texts: Sequence[str], number_of: Callable[[str], int | None], words: dict[str, int]
) -> Any:
    """Return the counts of the words that have a number, sparse [texts, words]."""
    from scipy.sparse import csr_matrix

    numbers = ([number_of(word) for word in words_of(text)] for text in texts)
    found = [[number for number in each if number is not None] for each in numbers]
    rows: np.ndarray = np.repeat(np.arange(len(texts)), [len(each) for each in found])
    columns = np.array([word for each in found for word in each], np.int64)
    return csr_matrix((np.ones(len(rows)), (rows, columns)), (len(texts), len(words)))
