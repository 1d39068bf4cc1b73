"""The inverted index: BM25 equals the formula, over one part or several."""

import math
import pathlib

import numpy as np
import pytest

from finetuning.kinds.baselines.bm25 import bm25
from finetuning.searching.word_postings import WordCounter, WordPostings, WordSearch

DOCUMENTS = ["A", "a b", "B b c, c\nd"]


@pytest.fixture
def searches(tmp_path: pathlib.Path):
    """Several lists of texts -> the search in parts with each of them.

    Each part has further passages, which no longer count.
    """

    def search(*parts: list[str]) -> WordSearch:
        found = []
        for number, texts in enumerate(parts):
            folder = tmp_path / f"{len(parts)}-{number}"
            folder.mkdir()
            counter = WordCounter()
            for text in texts:
                counter.add("a w1 w29 of a file that is gone")
                counter.add(text)
            counter.write(str(folder))
            found.append(WordPostings(str(folder), np.arange(2 * len(texts)) % 2 == 1))
        return WordSearch(found)

    return search


def test_by_hand(searches):
    """Lengths 1, 2, 5: the mean is 8/3. "a" is in two documents, "c" in one, "z" in none."""
    search = searches(DOCUMENTS)
    rare, common = math.log(1 + 2.5 / 1.5), math.log(1 + 1.5 / 2.5)

    def weight(count: int, length: int) -> float:
        return count * 1.9 / (count + 0.9 * (0.6 + 0.4 * length / (8 / 3)))

    assert search.ranking("a", 9) == [
        (0, pytest.approx(common * weight(1, 1), rel=1e-12)),
        (1, pytest.approx(common * weight(1, 2), rel=1e-12)),
    ]
    assert search.ranking("z c C", 9) == [(2, pytest.approx(2 * rare * weight(2, 5), rel=1e-12))]
    assert search.ranking("z", 9) == search.ranking("...", 9) == []
    assert len(search.ranking("a b c", 2)) == 2


def test_parts_are_searched_as_one(searches):
    words, rng = [f"w{number}" for number in range(30)], np.random.default_rng(0)
    texts = [" ".join(rng.choice(words, rng.integers(1, 20))) for _ in range(50)]
    whole, parts = searches(texts), searches(texts[:7], texts[7:8], texts[8:])
    for query in ("w1 w2 w3", "w4", "w29 w5 w5"):
        wanted = bm25(texts)([query])[0]
        for found in (whole.ranking(query, 50), parts.ranking(query, 50)):
            assert len(found) == np.count_nonzero(wanted)
            for row, score in found:
                assert score == pytest.approx(wanted[row], rel=1e-12)
        assert whole.ranking(query, 50) == parts.ranking(query, 50)


def test_common_words_are_not_marked_beside_rare_ones(searches):
    search = searches(["the red fox"] * 19 + ["the dog"] * 30)
    assert search.telling_words("The fox, unknown") == {"fox"}
    assert search.telling_words("the dog") == {"the", "dog"}


def test_of_many_passages_a_word_of_a_fifth_of_them_is_common(searches):
    search = searches(["a red fox"] * 39 + ["a fox"] + ["a dog"] * 160)
    assert search.telling_words("red fox") == {"red"}
    assert search.telling_words("fox dog") == {"fox", "dog"}
