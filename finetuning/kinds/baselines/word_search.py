"""What words alone say of how alike texts are: TF-IDF, and BM25 for searches and candidates."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.tasks.embedding.examples import SearchExample
from albert_tf.tasks.embedding.kind import ranking
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.ranking.examples import RankingExample
from albert_tf.tasks.ranking.kind import answer
from finetuning.datasets.dataset import Prediction
from finetuning.kinds.baselines.text_features import tf_idf

_K1, _B = 0.9, 0.4  # of Anserini, and of BEIR's baseline
_WORD = re.compile(r"\w+")
_CELLS = 2**23  # scores of queries and documents that are in memory at a time
Scorer = Callable[[Sequence[str]], np.ndarray]  # queries -> float64 [queries, documents]


def predictions(examples: Sequence[TextExample]) -> Mapping[str, list[Prediction]]:
    """Return the predictions of each method, empty if the examples are single texts.

    The rarity of words is that in the corpus or, of pairs, in the pairs themselves.
    """
    searches = [example for example in examples if isinstance(example, SearchExample)]
    if searches:
        return {"BM25": _ranked(searches, bm25), "TF-IDF": _ranked(searches, _tf_idf)}
    pairs = [(example.first, example.second) for example in examples if example.second is not None]
    if len(pairs) < len(examples) or not any(text.strip() for pair in pairs for text in pair):
        return {}
    vectors = tf_idf([text for pair in pairs for text in pair])
    first, second = (vectors([pair[i] for pair in pairs]) for i in (0, 1))
    cosines = np.asarray(first.multiply(second).sum(axis=1)).ravel()
    return {"TF-IDF": [{"score": float(cosine)} for cosine in cosines]}


def of_candidates(examples: Sequence[RankingExample]) -> Mapping[str, list[Prediction]]:
    """Return the predictions of BM25 and TF-IDF for queries with candidates.

    The rarity of words is that in the different candidates of all queries.
    """
    texts = dict.fromkeys(text for example in examples for text in example.candidates)
    number = {text: row for row, text in enumerate(texts)}
    rows = [[number[text] for text in example.candidates] for example in examples]
    step, predicted = max(1, _CELLS // len(number)), {}
    for name, prepare in {"BM25": bm25, "TF-IDF": _tf_idf}.items():
        scorer, predicted[name] = prepare([*number]), list[Prediction]()
        for begin in range(0, len(examples), step):
            scores = scorer([example.query for example in examples[begin : begin + step]])
            pairs = zip(scores, rows[begin : begin + step], strict=True)
            predicted[name] += [answer(of_query[columns]) for of_query, columns in pairs]
    return predicted


def _ranked(
    searches: Sequence[SearchExample], prepare: Callable[[Sequence[str]], Scorer]
) -> list[Prediction]:
    corpus = searches[0].corpus
    scorer, rankings = prepare(corpus.texts), []
    step = max(1, _CELLS // len(corpus))
    for begin in range(0, len(searches), step):
        scores = scorer([search.first for search in searches[begin : begin + step]])
        rankings += [{"ranking": ranking(corpus.ids, row)} for row in scores]
    return rankings


def bm25(documents: Sequence[str]) -> Scorer:
    """Return a function from queries to the BM25 scores of the documents.

    The inverse document frequency is ln(1 + (N - n + 0.5) / (n + 0.5)), k1 is 0.9 and b is 0.4.
    Words are runs of letters and digits in lower case; one that a query repeats counts each time.
    """
    from scipy.sparse import csr_matrix

    words: dict[str, int] = {}
    counts = _counts(documents, words)
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    frequency = np.asarray((counts > 0).sum(axis=0)).ravel()
    idf = np.log1p((len(documents) - frequency + 0.5) / (frequency + 0.5))
    norm = _K1 * (1 - _B + _B * lengths / max(1.0, lengths.mean()))
    rows, columns = counts.nonzero()
    weights = counts.data * (_K1 + 1) / (counts.data + norm[rows]) * idf[columns]
    weighted = csr_matrix((weights, (rows, columns)), counts.shape).T

    def scores(queries: Sequence[str]) -> np.ndarray:
        return (_counts(queries, dict(words))[:, : len(words)] @ weighted).toarray()

    return scores


def _counts(texts: Sequence[str], words: dict[str, int]) -> Any:
    """Return the counts of words, sparse [texts, words]; new words are added to `words`."""
    from scipy.sparse import csr_matrix

    word_ids = [
        [words.setdefault(word, len(words)) for word in _WORD.findall(text.lower())]
        for text in texts
    ]
    rows: np.ndarray = np.repeat(np.arange(len(texts)), [len(ids) for ids in word_ids])
    columns = np.array([word for ids in word_ids for word in ids], np.int64)
    return csr_matrix((np.ones(len(rows)), (rows, columns)), (len(texts), len(words)))


def _tf_idf(documents: Sequence[str]) -> Scorer:
    vectors = tf_idf(documents)
    known = vectors(documents).T
    return lambda queries: (vectors(queries) @ known).toarray()
