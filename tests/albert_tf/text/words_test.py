"""Tests of the rule by which characters join to words."""

import unicodedata

import numpy as np
import pytest

from albert_tf.text.words import joins_words, word_bounds


@pytest.mark.parametrize(
    ("text", "joins"),
    [
        ("aZ9", "111"),
        ("e\u0301", "11"),  # an accent of its own
        ("a-b_c.", "101010"),
        ("ß½Ⅳ", "111"),
        ("中ひカ한", "0001"),  # Korean has spaces
        ("ไทย", "000"),
        ("हिन्दी", "111111"),  # with vowel signs
        ("😀\u200d \t", "0000"),
    ],
)
def test_by_hand(text, joins):
    codes = np.array([ord(char) for char in text])
    assert "".join(str(int(each)) for each in joins_words(codes)) == joins


def test_bounds_alternate():
    bounds = word_bounds()
    assert (np.diff(bounds) > 0).all() and len(bounds) % 2 == 0
    every = joins_words(np.arange(0x3000))
    for code in range(0x3000):
        if every[code]:
            assert unicodedata.category(chr(code))[0] in "LMN"
