"""Tests that pieces are the tokenizer's own, and that their places in the text are exact."""

import itertools
import random

import numpy as np
import pytest

from albert_tf.text.alignment import _solid_lengths, align
from albert_tf.text.normalization import Normalization, normalize
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from albert_tf.text.wordpiece import split_words

RULES = [
    Normalization(lowercase, accents, quotes)
    for lowercase, accents, quotes in itertools.product((False, True), repeat=3)
]
# Ligatures, accents in one or two characters, expansions, signs of no width, white space of every
# kind, two quotes that become one, Hangul, CJK, astral, half a surrogate pair, a word no vocabulary
# has; İ and ẞ change under lower case, Σ by its place.
PARTS = (
    *"abcS3,.'`\"?-",
    "ﬁ",
    "é",
    "e\u0301",
    "Å",
    "ñ\u0323\u0301",
    "½",
    "Ⅳ",
    "℡",
    "ﷺ",
    "¨",
    "\u200b",
    "\ufeff",
    "\xad",
    "\x00",
    " ",
    "  ",
    "\t\n",
    "\u3000",
    "\x1c",
    "``",
    "''",
    "`\u200b`",
    "한국",
    "中文",
    "日本語",
    "😀",
    "\ud83d",
    "İ",
    "ẞ",
    "Σ",
    "2009,",
    "don't ",
    "xyzzy " * 3,
    "𝒜",
)


def wordpiece(rules: Normalization | None = None) -> Tokenizer:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cafe", "##s", "中", "文", "fi", "##x"]
    pieces += [*"abcdefghijklmnop0123456789.,'\"-", "##e", "##n", "S", "C"]
    return Tokenizer("\n".join(pieces).encode(), rules or Normalization())


@pytest.fixture(scope="module", params=["sentencepiece", "wordpiece"])
def tokenizer(request, small_tokenizer) -> Tokenizer:
    return small_tokenizer if request.param == "sentencepiece" else wordpiece()


def solid(text: str, tokenizer: Tokenizer) -> str:
    if tokenizer.vocabulary.processor is None:
        return "".join(split_words([text], tokenizer.normalization)[0])
    return normalize([text], tokenizer.normalization)[0].replace(" ", "")


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_each_character_becomes_a_fixed_number_of_others(tokenizer, rules):
    tokenizer = Tokenizer(tokenizer.model, rules)
    rng = random.Random(0)
    for _ in range(200):
        text = "".join(rng.choices(PARTS, k=rng.randint(0, 30)))
        counts = _solid_lengths(text, tokenizer)
        assert counts.sum() == len(solid(text, tokenizer)), ascii(text)


def test_of_every_character_of_unicode(tokenizer):
    text = "x".join(map(chr, range(0x20000)))
    counts = _solid_lengths(text, tokenizer)
    assert counts.sum() == len(solid(text, tokenizer))


@pytest.mark.parametrize("rules", [Normalization(), Normalization(False, False, True)], ids=str)
def test_pieces_are_the_tokenizer_s_and_stand_one_behind_the_other(tokenizer, rules):
    tokenizer = Tokenizer(tokenizer.model, rules)
    rng = random.Random(1)
    texts = ["".join(rng.choices(PARTS, k=rng.randint(0, 40))) for _ in range(200)]
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    pieces = align(texts, tokenizer)
    bounds = np.append(0, np.cumsum(pieces.counts))
    for row, (text, ids) in enumerate(zip(texts, tokenizer.encode_batch(texts), strict=True)):
        own = slice(bounds[row], bounds[row + 1])
        assert pieces.ids[own].tolist() == ids
        first, last, reach = pieces.first[own], pieces.last[own], pieces.reach[own]
        assert (first >= 0).all() and (reach < len(text)).all() and (last <= reach).all()
        assert (np.diff(first) >= 0).all() and (np.diff(last) >= 0).all()
        # Nothing falls between two pieces: a piece reaches to the next, unless one character
        # became both.
        assert ((first[1:] == reach[:-1] + 1) | (first[1:] <= last[:-1])).all(), ascii(text)


def test_by_hand():
    """cafe ##s 中 文 [UNK] fi ##x: accents and signs of no width belong to the piece before."""
    text = " Cafe\u0301s\u200b  中文 qqq\nfix"
    pieces = align(["", text], wordpiece())
    assert pieces.counts.tolist() == [0, 7]
    assert pieces.first.tolist() == [1, 6, 10, 11, 13, 17, 19]
    assert pieces.last.tolist() == [4, 6, 10, 11, 15, 18, 19]
    assert pieces.reach.tolist() == [5, 9, 10, 12, 16, 18, 19]


def test_no_texts(tokenizer):
    assert align([], tokenizer).ids.tolist() == align(["", " "], tokenizer).ids.tolist() == []


@pytest.mark.parametrize("text", ["in 2009, 1,000 or 3,", "2009,2010, ２００９,", "(¨) ⁇ x"])
def test_digit_commas_of_the_published_vocabulary(shared_data, text):
    tokenizer = load_tokenizer(shared_data / "vocab" / "albert_en_30k" / "spiece.model")
    pieces = align([text], tokenizer)
    assert pieces.ids.tolist() == tokenizer.encode(text)
    commas = [i for i, piece in enumerate(tokenizer.pieces(text)) if piece == ","]
    assert [text[pieces.first[i] : pieces.last[i] + 1] for i in commas] == [","] * len(commas)
