"""BM25 and TF-IDF by hand, and on the real collections."""

import math

import numpy as np
import pytest

from albert_tf.tasks.embedding.examples import Corpus, SearchExample
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.ranking.examples import RankingExample
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Source
from finetuning.kinds.baselines.bm25 import bm25
from finetuning.kinds.baselines.word_search import of_candidates, predictions


def test_bm25_by_hand():
    """Lengths 1, 2, 3: the mean is 2. "a" is in two documents, "c" in one, "z" in none."""
    found = bm25(["A", "a b", "b b c"])(["a", "c c", "z"])
    rare, common = math.log(1 + 2.5 / 1.5), math.log(1 + 1.5 / 2.5)

    def weight(count: int, length: int) -> float:
        return count * 1.9 / (count + 0.9 * (0.6 + 0.4 * length / 2))

    wanted = [
        [common * weight(1, 1), common * weight(1, 2), 0],
        [0, 0, 2 * rare * weight(1, 3)],
        [0, 0, 0],
    ]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_searches_and_pairs():
    corpus = Corpus(("x", "y"), ("a red apple", "the tool"))
    found = predictions([SearchExample("which tool", corpus=corpus)])
    assert {*found} == {"BM25", "TF-IDF"}
    for (answer,) in found.values():
        assert [name for name, _ in answer["ranking"]] == ["y", "x"]
    pairs = [TextExample("a b", "a b"), TextExample("a", "c")]
    (same, other) = predictions(pairs)["TF-IDF"]
    assert same["score"] == pytest.approx(1) and other["score"] == 0
    assert predictions([TextExample("a")]) == predictions([TextExample("", " ")]) == {}


def test_candidates():
    """Words are as rare as in all different candidates; a query has the scores of its own."""
    examples = [
        RankingExample("which tool", ("a red apple", "the tool")),
        RankingExample("red", ("the tool", "a red apple", "red")),
    ]
    found = of_candidates(examples)
    assert {*found} == {"BM25", "TF-IDF"}
    for first, second in found.values():
        assert first["ranking"] == [1, 0] and second["ranking"] == [2, 1, 0]
    scores = bm25(["a red apple", "the tool", "red"])(["red"])[0]
    assert found["BM25"][1]["scores"] == pytest.approx([scores[1], scores[0], scores[2]])


@pytest.mark.parametrize(
    ("name", "queries", "documents", "ndcg"),
    [("squad2_a", 1299, 301, 0.821), ("cranfield", 225, 1398, 0.316), ("cacm", 52, 3204, 0.371)],
)
def test_the_published_collections(shared_data, name, queries, documents, ndcg):
    """The figures are those of an independent BM25 on the same files."""
    dataset = DATASETS["embedding"]
    source = Source(str(shared_data / "retrieval" / name))
    examples = dataset.examples(source, "test")
    assert (len(examples), len(examples[0].corpus)) == (queries, documents)
    found = dataset.score(predictions(examples)["BM25"], examples)
    assert found["ndcg_at_10"] == pytest.approx(ndcg, abs=0.01)


def test_words_have_their_combining_marks():
    nonsense, book, coffee = "क त ब क त ब", "एक किताब", "un cafe\u0301 noir"
    scores = bm25([nonsense, book, coffee])(["किताब", "café"])
    assert (scores > 0).tolist() == [[False, True, False], [False, False, True]]
