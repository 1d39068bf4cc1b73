"""Tests of the note on unknown pieces: when it is due, and what it names."""

import numpy as np
import pytest

from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.tokens.examples import TokenExample
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.unknown_pieces import UnknownPieces


def test_the_note_is_due_above_one_percent():
    assert UnknownPieces(1, 100, {"^": 1}).note("x") is None
    assert UnknownPieces().note("x") is None
    assert UnknownPieces(2, 100, {"^": 2}).note("--tokenizer") == (
        "2.0% of the pieces are unknown to the vocabulary: 2 of ^. Check that --tokenizer is "
        "for such text."
    )


def test_the_most_frequent_characters_are_named():
    characters = {"’": 8365, "^": 367, "😂": 301, "\ufe0f": 208, "_": 2, "@": 1, "ß": 1}
    assert UnknownPieces(1, 2, characters).note("it") == (
        "50.0% of the pieces are unknown to the vocabulary: 8,365 of ’ (U+2019), 367 of ^, 301 of "
        "😂 (U+1F602), 208 of U+FE0F, 2 of _, and 2 other characters. Check that it is for such "
        "text."
    )


def test_counts_by_hand(small_tokenizer):
    """A run of unknown characters is one piece; the vocabulary has no emoji and no 日."""
    texts = ["a 😂😂 b", "the 日", "the"]
    rows = [[2, *small_tokenizer.encode(text), 3] for text in texts]
    ids = np.concatenate(rows)
    first = UnknownPieces.of(ids, texts, small_tokenizer)
    assert (first.unknown, first.pieces) == (2, len(ids) - 6)
    assert first.characters == {"😂": 2, "日": 1}
    both = first + UnknownPieces.of(ids[-3:], texts[2:], small_tokenizer) + first
    assert (both.unknown, both.characters) == (4, {"😂": 4, "日": 2})


@pytest.mark.parametrize("text", ["ab [UNK]", "aß ab"])
def test_special_pieces_are_no_known_characters(text):
    """Of wordpieces, an unknown one is a whole word, whose known characters do not count."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"]
    tokenizer = Tokenizer("\n".join(pieces).encode())
    assert tokenizer.special.unk in tokenizer.encode(text)
    wanted = {"ß": 1} if "ß" in text else dict.fromkeys("[unk]", 1)
    assert tokenizer.unknown_characters([text]) == wanted


@pytest.mark.parametrize(
    ("example", "texts"),
    [
        (TextExample("a"), ("a",)),
        (TextExample("a", ""), ("a", "")),
        (SpanExample("q", "c"), ("q", "c")),
        (ChoiceExample("q", "c", ("x", "y")), ("q", "c", "x", "y")),
        (TokenExample("t"), ("t",)),
    ],
)
def test_the_texts_of_examples(example, texts):
    assert example.texts == texts
