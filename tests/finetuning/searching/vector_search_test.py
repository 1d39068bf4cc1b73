"""A search gives what sorting all scores gives; FAISS finds the same."""

import sys

import numpy as np
import pytest

from albert_tf.runtime.errors import InputError
from finetuning.searching.vector_search import FaissSearch, NumpySearch, search_of


def vectors(count: int, width: int = 16) -> np.ndarray:
    values = np.random.default_rng(count).normal(size=(count, width))
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float16)


def in_order(parts: list[np.ndarray], query: np.ndarray) -> list[int]:
    scores = np.concatenate(parts).astype(np.float32) @ query
    return np.argsort(-scores, kind="stable").tolist()


@pytest.mark.parametrize("count", [1, 10, 500])
def test_it_equals_a_full_sort(count):
    parts = [vectors(100), vectors(1), vectors(33)]
    search = NumpySearch(parts)
    for query in vectors(5).astype(np.float32):
        found = search.ranking(query, count)
        assert [row for row, _ in found] == in_order(parts, query)[:count]
        assert sorted((score for _, score in found), reverse=True) == [s for _, s in found]


def test_equal_scores_come_in_the_order_of_rows():
    same = np.ones((9, 4), np.float16)
    found = NumpySearch([same, same]).ranking(np.ones(4, np.float32), 5)
    assert found == [(row, 4.0) for row in range(5)]


def test_many_vectors_need_faiss(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert isinstance(search_of([vectors(10)], 10), NumpySearch)
    with pytest.raises(InputError, match=r"11 passages needs the package faiss.*\[search\]"):
        search_of([vectors(10), vectors(1)], 10)


@pytest.mark.slow
def test_faiss_finds_the_same():
    """The index is exact: the ten best rows are NumPy's."""
    pytest.importorskip("faiss", reason="the extra search")
    parts = [vectors(20_000, 64), vectors(3_000, 64)]
    search = search_of(parts, 1000)
    assert isinstance(search, FaissSearch)
    for query in vectors(50, 64).astype(np.float32):
        found, wanted = search.ranking(query, 10), NumpySearch(parts).ranking(query, 10)
        assert [row for row, _ in found] == [row for row, _ in wanted]
        np.testing.assert_allclose(
            [score for _, score in found], [score for _, score in wanted], atol=1e-5
        )
    assert len(search.ranking(query, 30_000)) == 23_000
