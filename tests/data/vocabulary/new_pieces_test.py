"""Tests of the pieces that a text needs."""

from collections import Counter

import pytest

from albert_tf.text.tokenizer import Tokenizer
from data.vocabulary.new_pieces import (
    count_pieces,
    count_words,
    extended,
    new_characters,
    new_pieces,
)

TEXT = {
    "The photosynthesis of 20,413 chloroplasts; photosynthetic.": 30,
    "A chloroplast (photosynthesis) is a chloroplast.": 20,
    "Mail me at home, it’s 5 μm ☃☃!": 3,
    "Once: ♞. 👩\u200d💻 ❤\ufe0f \ufffd": 1,
    "♞ ❤\ufe0f again. 👩\u200d💻 \ufffd": 2,
}


@pytest.fixture(scope="module")
def words(small_tokenizer: Tokenizer) -> Counter[str]:
    sentences = [text for text, count in TEXT.items() for _ in range(count)]
    return count_words(sentences, small_tokenizer)


def test_words_are_counted_as_the_model_reads_them(words):
    assert words["photosynthesis"] == 30 and words["(photosynthesis)"] == 20
    assert words["it's"] == 3  # folded
    assert words["5"] == 3 and words["the"] == 30 and "" not in words


def test_pieces_are_those_of_the_whole_text(words, small_tokenizer):
    ids = [
        i
        for text, count in TEXT.items()
        for i in small_tokenizer.vocabulary.processor.encode(text.lower()) * count
    ]
    counts = count_pieces(words, small_tokenizer)
    assert {i: n for i, n in enumerate(counts.tolist()) if n} == Counter(ids)


def test_characters_that_have_a_shape_and_occur_often_enough(words, small_tokenizer):
    found = new_characters(words, small_tokenizer, 3)
    assert found == {"☃": 6, "!": 3, "μ": 3, "♞": 3, "❤": 3, "👩": 3, "💻": 3}
    assert list(found)[:2] == ["☃", "!"]  # most first, then by code point
    assert list(new_characters(words, small_tokenizer, 4)) == ["☃"]


def test_words_and_their_parts(words, small_tokenizer):
    """Letters only or digits only; the most useful first; all of them used as they were counted."""
    pieces = new_pieces(words, small_tokenizer, 6, 3)
    assert len(pieces) == 6 and set(pieces).isdisjoint(small_tokenizer.vocabulary.pieces)
    # With photosynthesis, ▁photosynthesis saves only one piece.
    assert "photosynthesis" in pieces and "▁photosynthesis" not in pieces
    for piece in pieces:
        bare = piece.lstrip("▁")
        assert bare.isalpha() or bare.isdigit()
    new = extended(small_tokenizer, pieces, int(count_pieces(words, small_tokenizer).sum()))
    used = count_pieces(words, new)[small_tokenizer.vocab_size :].tolist()
    assert dict(zip(pieces, used, strict=True)) == pieces and min(used) >= 3
    more = extended(small_tokenizer, new_pieces(words, small_tokenizer, 12, 3), 1000)
    sums = [int(count_pieces(words, each).sum()) for each in (small_tokenizer, new, more)]
    assert sums[0] > sums[1] > sums[2]


def test_too_few_are_returned_if_there_are_no_more(words, small_tokenizer):
    every = new_pieces(words, small_tokenizer, 1000, 3)
    assert 6 < len(every) < 1000
    assert len(new_pieces(words, small_tokenizer, len(every), 3)) == len(every)
