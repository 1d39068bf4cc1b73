"""Tests that a vocabulary that extends another keeps its ids, and really uses what is new."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.convert.huggingface import fast_tokenizer, fast_tokenizer_writer
from albert_tf.runtime.files import outputs
from albert_tf.text.extension import (
    add_pieces,
    best_split,
    distinct_scores,
    origins,
    why_no_extension,
)
from albert_tf.text.graph_tokenizer import GraphTokenizer
from albert_tf.text.normalization import Normalization
from albert_tf.text.tokenizer import Tokenizer

# The last three are unknown to the old vocabulary. A single letter may stand in old text too.
NEW = {"▁quantum": 50, "quark": 20, "▁quantumquark": 4, "zzz": 2, "!": 9, "☃": 1, "μm": 3}
WORDS = ["quantum", "quark", "antiquark", "Quantumquark", "zzzz", "!home", "☃☃☃", "5μm", "the", "x"]


@pytest.fixture(scope="module")
def old(small_tokenizer: Tokenizer) -> Tokenizer:
    assert not set(NEW) & set(small_tokenizer.vocabulary.pieces)
    assert {"!", "☃", "μ"}.isdisjoint("".join(small_tokenizer.vocabulary.pieces))
    return small_tokenizer


@pytest.fixture(scope="module")
def new(old: Tokenizer) -> Tokenizer:
    scores = distinct_scores(NEW, 1000, old.vocabulary.scores)
    return Tokenizer(add_pieces(old.model, scores), old.normalization)


def test_old_pieces_stay_and_new_ones_follow(old, new):
    assert new.vocabulary.pieces == [*old.vocabulary.pieces, *NEW]
    assert new.vocab_size == 307 and new.special == old.special
    assert why_no_extension(old, new) == ""
    before, after = old.vocabulary.scores, new.vocabulary.scores
    assert {piece: after[piece] for piece in before} == before


def test_the_best_split_by_hand():
    scores = {"a": -1.0, "b": -2.0, "ab": -2.5, "bc": -1.0}
    assert best_split("abab", scores) == (-5.0, ["ab", "ab"])
    assert best_split("abc", scores) == (-2.0, ["a", "bc"])
    assert best_split("ac", scores) == (-1001.0, ["a", "c"])  # c is unknown
    assert best_split("", scores) == (0.0, [])


def test_the_best_split_is_sentencepieces(old):
    for text in ("tokenization", "statement", "unmatched", "qqq"):
        _, pieces = best_split(f"▁{text}", old.vocabulary.scores)
        assert pieces == old.pieces(text)


def test_scores_by_hand():
    """A share of 1/100; the sum of the parts and a margin; the least score; no two alike."""
    old = {"a": -1.5, "b": -2.0, "c": -9.0}
    uses = {"abb": 1000, "ab": 1, "cc": 0, "cb": 0, "d": 100, "e": 100}
    scores = distinct_scores(uses, 100_000, old)
    assert scores["ab"] == pytest.approx(-3.4)
    assert scores["abb"] == pytest.approx(math.log(0.01))  # above -3.4 - 2 + 0.1
    assert scores["d"] == pytest.approx(math.log(0.001))
    assert scores["cc"] == pytest.approx(-9.0) and scores["cb"] == pytest.approx(-9.0)
    every = [*scores.values(), *old.values()]
    assert len(set(every)) == len(every) and min(every) == -9.0 and max(every) == -1.5
    assert all(np.float32(score) == score for score in scores.values())
    assert list(scores) == list(uses)


def test_a_new_piece_alone_is_used(new):
    for text in ("quantum", "Quantumquark", "antiquark", "!", "☃", "5 μm"):
        assert new.special.unk not in new.encode(text)
    assert new.pieces("quantum quantumquark") == ["▁quantum", "▁quantumquark"]
    assert new.pieces("!☃") == ["▁", "!", "☃"]


@given(st.text(st.sampled_from("thequanr lo,5x.'-É"), max_size=40))
@settings(max_examples=200, deadline=None)
def test_text_without_a_new_piece_keeps_its_ids(old, new, text):
    joined = old.vocabulary.normalized([text], old.normalization)
    if not any(piece in joined for piece in NEW):
        assert new.encode(text) == old.encode(text)


@pytest.fixture(scope="module")
def graph(new) -> GraphTokenizer:
    return GraphTokenizer(new)


@given(st.lists(st.text(st.sampled_from('!☃μmzquark "5,'), max_size=9) | st.sampled_from(WORDS)))
@settings(max_examples=150, deadline=None)
def test_the_graph_agrees(new, graph, texts):
    """But for segmentations of equal score, such as zzz z and z zzz."""
    text = " ".join(texts)
    (ids,), wanted = graph(tf.constant([text])).to_list(), new.encode(text)
    score = new.vocabulary.processor.get_score
    same_score = sum(map(score, ids)) == pytest.approx(sum(map(score, wanted)), abs=1e-3)
    assert ids == wanted or (same_score and sorted(ids) == sorted(wanted))


def test_tokenizer_json_brings_it_back(new, tmp_path):
    outputs.write_json(str(tmp_path / "tokenizer.json"), fast_tokenizer_writer.to_json(new))
    read = fast_tokenizer.read(str(tmp_path / "tokenizer.json"))
    assert read.vocabulary.pieces == new.vocabulary.pieces
    assert read.vocabulary.scores == new.vocabulary.scores
    assert read.encode_batch(WORDS) == new.encode_batch(WORDS)


def test_reasons(old, new):
    other = Tokenizer(old.model, dataclasses.replace(Normalization(), lowercase=False))
    assert why_no_extension(old, other) == "its options of normalization differ"
    assert why_no_extension(new, old) == "it has 300 pieces, not more than 307"
    renamed = old.model.replace("▁the".encode(), "▁thx".encode(), 1)
    i = old.vocabulary.pieces.index("▁the")
    assert why_no_extension(old, Tokenizer(renamed)) == f"its piece {i} is '▁thx', not '▁the'"
    wordpiece = Tokenizer(b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    assert why_no_extension(wordpiece, new) == "only a sentencepiece model can be extended"


def test_origins(old, new):
    pieces, found = old.vocabulary.pieces, dict(zip(NEW, origins(old, new), strict=True))
    assert [[pieces[i] for i in ids] for ids in found["zzz"]] == [["z"]] * 3
    assert sum(found["▁quantumquark"], []) == old.encode("quantumquark")
    (single,) = found["!"]
    assert single == [
        i for i, piece in enumerate(pieces) if len(piece) == 1 and i > 12 and piece != "▁"
    ]
    assert found["☃"] == [single]
    assert found["μm"] == [single, [pieces.index("m")]]
