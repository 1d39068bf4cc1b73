"""What words alone say of how alike texts are: TF-IDF, and BM25 for searches and candidates."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from albert_tf.tasks.embedding.examples import SearchExample
from albert_tf.tasks.embedding.kind import ranking
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.ranking.examples import RankingExample
from albert_tf.tasks.ranking.kind import answer
from albert_tf.training.progress import Progress
from finetuning.datasets.dataset import Prediction
from finetuning.kinds.baselines.bm25 import WordScorer, bm25
from finetuning.kinds.baselines.text_features import tf_idf

_CELLS = 2**23  # scores of queries and documents that are in memory at a time


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
    queries = [example.query for example in examples]
    return {
        name: [*map(answer, prepare([*number]).of_pairs(queries, rows))]
        for name, prepare in {"BM25": bm25, "TF-IDF": _tf_idf}.items()
    }


def _ranked(
    searches: Sequence[SearchExample], prepare: Callable[[Sequence[str]], WordScorer]
) -> list[Prediction]:
    corpus = searches[0].corpus
    scorer, rankings = prepare(corpus.texts), []
    step = max(1, _CELLS // len(corpus))
    with Progress("queries by words", len(searches)) as progress:
        for begin in range(0, len(searches), step):
            part = searches[begin : begin + step]
            scores = scorer([search.first for search in part])
            rankings += [{"ranking": ranking(*pair)} for pair in zip(part, scores, strict=True)]
            progress.advance(len(part))
    return rankings


def _tf_idf(documents: Sequence[str]) -> WordScorer:
    vectors = tf_idf(documents)
    return WordScorer(vectors(documents), vectors)
