"""Tests that typographic punctuation becomes ASCII, and that nothing else changes."""

import functools
import io
import itertools
import sys

import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.text.alignment import align
from albert_tf.text.graph_tokenizer import GraphTokenizer
from albert_tf.text.normalization import Normalization, normalize
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from albert_tf.text.typography import PUNCTUATION, fold_punctuation, folding_normalizer
from tests.albert_tf.text.graph_aligner_test import aligner, rows_that_differ

PLAIN = {char: ascii_char for ascii_char, chars in PUNCTUATION.items() for char in chars}
# What NFKC made of these is replaced too.
COMPATIBLE = {"￭": "*", "￮": "*", "‑": "-", "﹘": "-", "︱": "-", "⁻": "-", "₋": "-", "ŉ": "'n"}
PRIMES = {"″": '"', "‴": "\"'", "⁗": '""', "‶": '"', "‷": "\"'", "′′": '"', "‵‵": '"'}
UNICODE = [chr(c) for c in range(1, sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]


def train(normalizer: sentencepiece.SentencePieceNormalizer | None) -> bytes:
    """A vocabulary of characters, most of them ASCII, with – as a piece of its own."""
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a-b *c* \"d\" 'e' don't well x"] * 20),
        model_writer=stream,
        vocab_size=40,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        user_defined_symbols=["–"],
        normalizer=normalizer,
        minloglevel=2,
    )
    return stream.getvalue()


@pytest.fixture(scope="module")
def plain() -> bytes:
    return train(None)


@pytest.fixture(scope="module", params=["trained", "added"])
def folded(request, plain) -> bytes:
    """The two ways to the rules."""
    return train(folding_normalizer("–")) if request.param == "trained" else fold_punctuation(plain)


@functools.cache
def rules_of(model: bytes) -> dict[str, str]:
    return dict(sentencepiece.SentencePieceNormalizer(model_proto=model).decompile())


def test_the_rules_are_the_old_ones_and_ours(plain, folded):
    old, new = rules_of(plain), rules_of(folded)
    assert len(old) > 225_000  # nmt_nfkc with its sequences
    ours = PLAIN | COMPATIBLE | PRIMES
    del ours["–"]
    assert {source: target for source, target in new.items() if old.get(source) != target} == ours
    assert old.keys() <= new.keys()


def test_on_every_character_and_every_rule(plain, folded):
    """As the processor applies them, which shows that the compiled map is whole."""
    old, new = (sentencepiece.SentencePieceProcessor(model_proto=m) for m in (plain, folded))
    sources = [*UNICODE, *rules_of(folded)]
    texts = ["x".join(sources[i : i + 500]) for i in range(0, len(sources), 500)]
    ours = str.maketrans({char: to for char, to in PLAIN.items() if char != "–"})
    wanted = [
        text.replace("′′", '"').replace("‵‵", '"').translate(ours) for text in old.normalize(texts)
    ]
    assert new.normalize(texts) == wanted


def test_everything_else_of_a_model_stays(plain):
    added = fold_punctuation(plain)
    old, new = (sentencepiece.SentencePieceProcessor(model_proto=m) for m in (plain, added))
    every = list(range(len(old)))
    assert old.id_to_piece(every) == new.id_to_piece(every)
    assert old.get_score(every) == new.get_score(every)
    assert fold_punctuation(added) == added


def test_a_character_with_a_piece_keeps_it():
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["l’été “a”"] * 20),
        model_writer=stream,
        vocab_size=20,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(
        model_proto=fold_punctuation(stream.getvalue())
    )
    assert processor.normalize("’“”—") == "▁’“”-"


@pytest.mark.parametrize("accents", [False, True])
def test_ids_and_places_by_hand(folded, accents):
    """Five characters of three bytes; the ids are those of ASCII, the places those of the text."""
    tokenizer = Tokenizer(folded, Normalization(strip_accents=accents))
    text, ascii_text = "“well” — don’t ‑x • x", '"well" - don\'t -x * x'
    assert tokenizer.encode(text) == tokenizer.encode(ascii_text)
    assert tokenizer.special.unk not in tokenizer.encode(text)
    pieces, same = align([text], tokenizer), align([ascii_text], tokenizer)
    for name in ("first", "last", "reach"):
        assert getattr(pieces, name).tolist() == getattr(same, name).tolist()
    quote = tokenizer.pieces(text).index("'")
    assert text[pieces.first[quote] : pieces.last[quote] + 1] == "’"


MIXED = st.lists(
    st.sampled_from(
        [
            *PLAIN,
            *COMPATIBLE,
            *PRIMES,
            *"abdwx'\"-*, ",
            "é",
            "e\u0301",
            "ñ",
            "don’t ",
            "  ",
            "ﬁ",
            "–",
        ]
    ),
    max_size=30,
).map("".join)


@pytest.fixture(scope="module")
def faces():
    """(tokenizer, its graph) of the included vocabulary, under each handling of accents."""
    included = load_tokenizer("albert-mini-en")
    both = []
    for accents in (True, False):
        tokenizer = Tokenizer(included.model, Normalization(strip_accents=accents))
        both.append((tokenizer, aligner(tokenizer)))
    return both


@settings(max_examples=30, deadline=None)
@given(texts=st.lists(MIXED, max_size=12))
def test_both_faces_and_sentencepiece_agree(faces, texts):
    for tokenizer, graph in faces:
        assert not rows_that_differ(texts, tokenizer, graph)
        normal = normalize(texts, tokenizer.normalization)
        raw = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
        assert tokenizer.encode_batch(texts) == raw.encode(normal)  # no piece with a digit comma


def test_the_included_vocabulary_knows_typographic_punctuation():
    tokenizer = load_tokenizer("albert-mini-en")
    for char, ascii_char in PLAIN.items():
        wanted = char if char in "–′" else ascii_char  # these two have pieces of their own
        assert tokenizer.pieces(f"a{char}b") == tokenizer.pieces(f"a{wanted}b"), char
        assert tokenizer.special.unk not in tokenizer.encode(f"a{char}b"), char


def test_in_a_graph_too(folded):
    tokenizer = Tokenizer(folded)
    texts = [f"a{char}{accent}b" for char, accent in itertools.product(PLAIN, ("", "\u0301", "é"))]
    ids = GraphTokenizer(tokenizer)(tf.constant(texts)).to_list()
    assert ids == tokenizer.encode_batch(texts)
