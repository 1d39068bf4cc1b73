"""Searches of many passages: how many of each ranking are fused, and how many are sorted anew."""

import random

import numpy as np
import pytest

from finetuning.searching.rankings import fused
from finetuning.searching.search_index import SearchIndex, shown_path
from finetuning.searching.searcher import BOTH, METHODS, VECTORS, WORDS, Searcher
from tests.finetuning.searching.conftest import LetterModel, build

COUNT = 130


@pytest.fixture
def index(tmp_path, monkeypatch) -> SearchIndex:
    """An index of sentences of six words, two of which do not fit into a passage of eight."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(0)
    words = [f"{a}{b}" for a in "bcdfgklm" for b in "aeiou"]
    sentences = [f"Tea {' '.join(rng.choices(words, k=5))}." for _ in range(COUNT)]
    (tmp_path / "many.txt").write_text("\n".join(sentences))
    build(corpus="text:many.txt")
    index = SearchIndex("index")
    assert len(index) == COUNT
    return index


def test_paths_are_relative_to_the_working_directory_while_there_is_one(tmp_path, monkeypatch):
    path, gone = str(tmp_path / "notes.txt"), tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(tmp_path)
    assert shown_path(path) == "notes.txt"
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert shown_path(path) == path


@pytest.mark.parametrize("count", [3, 60, 100, 120])
def test_a_hundred_of_each_ranking_are_fused_or_as_many_as_asked_for(index, count: int):
    searcher = Searcher(index, LetterModel().query)
    both = [searcher.ranking("tea lulu", max(count, 100), by) for by in (WORDS, VECTORS)]
    assert searcher.ranking("tea lulu", count, BOTH) == fused(both)[:count]
    assert len(both[0]) == len(both[1]) == max(count, 100)


@pytest.mark.parametrize("by", METHODS)
def test_fifty_passages_are_sorted_anew_or_as_many_as_asked_for(index, by: str):
    asked = []

    def rank(query: str, texts: list[str]) -> np.ndarray:
        asked.append(len(texts))
        return np.arange(len(texts), dtype=np.float32)  # the last one is the best

    plain, anew = Searcher(index, LetterModel().query), Searcher(index, LetterModel().query, rank)
    for count in (2, 50, 60):
        rows = [row for row, _ in plain.ranking("tea lulu", max(count, 50), by)]
        assert [row for row, _ in anew.ranking("tea lulu", count, by)] == rows[::-1][:count]
    assert asked == [50, 50, 60]
