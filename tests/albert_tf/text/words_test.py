"""Tests of the rule by which characters join to words."""

import unicodedata

import numpy as np
import pytest

from albert_tf.text.words import (
    in_ranges,
    invisible_bounds,
    word_bounds,
    word_count,
    words_of,
)


@pytest.mark.parametrize(
    ("text", "joins"),
    [
        ("aZ9", "111"),
        ("e\u0301", "11"),  # an accent of its own
        ("a-b_c.", "101010"),
        ("ß½Ⅳ", "111"),
        ("中ひカ한", "0000"),
        ("ไทย", "000"),
        ("हिन्दी", "111111"),  # with vowel signs
        ("😀\u200d \t", "0000"),
    ],
)
def test_by_hand(text, joins):
    codes = np.array([ord(char) for char in text])
    assert "".join(str(int(each)) for each in in_ranges(codes, word_bounds())) == joins


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("One two-three.", 2),
        ("", 0),
        ("我爱北京。", 4),
        ("ไทย", 3),
        ("나는 간다", 2),
        ("a 中 b c", 4),
    ],
)
def test_words_are_counted(text, count):
    assert word_count(text) == count


def test_bounds_alternate():
    bounds = word_bounds()
    assert (np.diff(bounds) > 0).all() and len(bounds) % 2 == 0
    every = in_ranges(np.arange(0x3000), word_bounds())
    for code in range(0x3000):
        if every[code]:
            assert unicodedata.category(chr(code))[0] in "LMN"


def test_spaces_and_zero_width_characters_are_invisible():
    text = "a \t\u3000\u200b\u200f\ufeff\xad\x00-\u0301😀"
    codes = np.array([ord(char) for char in text])
    found = in_ranges(codes, invisible_bounds())
    assert "".join(str(int(each)) for each in found) == "0" + "1" * 8 + "000"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("किताब पढ़ी", ["किताब", unicodedata.normalize("NFC", "पढ़ी")]),
        ("الْكِتَابُ", ["الْكِتَابُ"]),
        ("In İstanbul, istanbul!", ["in", "istanbul", "istanbul"]),
        ("ＴＯＫＹＯ ２０２０ ﬁnden", ["tokyo", "2020", "finden"]),
        ("п'ять пʼять", ["п", "ять", "п", "ять"]),
        ("東京都1区 ไทยดี", [*"東京都", "1", "区", *"ไทย", "ดี"]),
        ("나는 간다", ["나는", "간다"]),
        ("_Emphasis_ of seq_length, a-b", ["emphasis", "of", "seq", "length", "a", "b"]),
        ("cafe\u0301 Donau\u00addampfer 3½", ["caf\u00e9", "donaudampfer", "31", "2"]),
        ("... ?!", []),
    ],
)
def test_words_of_a_text(text, words):
    assert words_of(text) == words
