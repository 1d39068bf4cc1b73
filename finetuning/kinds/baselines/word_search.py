"""What words alone say of how alike texts are: TF-IDF, and BM25 for searches."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from albert_tf.tasks.embedding.examples import SearchExample
from albert_tf.tasks.embedding.kind import ranking
from albert_tf.tasks.examples import TextExample
from finetuning.datasets.dataset import Prediction
from finetuning.kinds.baselines.bm25 import Scorer, bm25
from finetuning.kinds.baselines.text_features import tf_idf

_CELLS = 2**23  # scores of queries and documents that are in memory at a time


def predictions(examples: Sequence[TextExample]) -> Mapping[str, list[Prediction]]:
    """Return the predictions of each method, empty if the examples are single texts.

    The rarity of words is that in the corpus or, of pairs, in the pairs themselves.
    """
    searches = [each for each in examples if isinstance(each, SearchExample)]
    if searches:
        return {"BM25": _ranked(searches, bm25), "TF-IDF": _ranked(searches, _tf_idf)}
    pairs = [(each.first, each.second) for each in examples if each.second is not None]
    if len(pairs) < len(examples) or not any(text.strip() for pair in pairs for text in pair):
        return {}
    vectors = tf_idf([text for pair in pairs for text in pair])
    first, second = (vectors([pair[i] for pair in pairs]) for i in (0, 1))
    cosines = np.asarray(first.multiply(second).sum(axis=1)).ravel()
    return {"TF-IDF": [{"score": float(each)} for each in cosines]}


def _ranked(
    searches: Sequence[SearchExample], prepare: Callable[[Sequence[str]], Scorer]
) -> list[Prediction]:
    corpus = searches[0].corpus
    scorer, found = prepare(corpus.texts), []
    step = max(1, _CELLS // len(corpus))
    for begin in range(0, len(searches), step):
        scores = scorer([each.first for each in searches[begin : begin + step]])
        found += [{"ranking": ranking(corpus.ids, row)} for row in scores]
    return found


def _tf_idf(documents: Sequence[str]) -> Scorer:
    vectors = tf_idf(documents)
    known = vectors(documents).T
    return lambda queries: (vectors(queries) @ known).toarray()
