"""Tests that the pieces' places in a graph are those of the Python face."""

import random

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.text.alignment import align
from albert_tf.text.graph_aligner import GraphAligner, byte_bounds
from albert_tf.text.graph_tokenizer import GraphTokenizer
from albert_tf.text.normalization import Normalization
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from finetuning.datasets.spans.squad_reader import questions_of
from tests.albert_tf.text.alignment_test import PARTS, RULES, wordpiece

PLACES = ("first", "last", "reach")


def aligner(tokenizer: Tokenizer):
    """(texts) -> the pieces, as a graph for batches of any size."""
    align_in_graph = GraphAligner(tokenizer, GraphTokenizer(tokenizer))
    texts = [tf.TensorSpec([None], tf.string)]
    return tf.function(align_in_graph, input_signature=texts, autograph=False)


def rows_that_differ(texts: list[str], tokenizer: Tokenizer, graph) -> list[int]:
    """The texts of equal ids must have equal places; returns those of other ids."""
    python, ours = align(texts, tokenizer), graph(tf.constant(texts, tf.string))
    ids, differ = ours.ids.to_list(), []
    assert len(ids) == len(texts)
    ends, own_ends = np.cumsum(python.counts), ours.ids.row_splits.numpy()[1:]
    for row, text in enumerate(texts):
        one = slice(ends[row] - python.counts[row], ends[row])
        other = slice(own_ends[row] - len(ids[row]), own_ends[row])
        if python.ids[one].tolist() != ids[row]:
            differ.append(row)
            continue
        for name in PLACES:
            wanted, found = getattr(python, name)[one], getattr(ours, name).numpy()[other]
            assert wanted.tolist() == found.tolist(), (name, ascii(text))
        assert ours.codes[row].numpy().tolist() == list(map(ord, text))
    return differ


@pytest.fixture(scope="module", params=["sentencepiece", "wordpiece"])
def tokenizer(request, small_tokenizer) -> Tokenizer:
    return small_tokenizer if request.param == "sentencepiece" else wordpiece()


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_hard_strings(tokenizer, rules):
    tokenizer = Tokenizer(tokenizer.model, rules)
    rng = random.Random(0)
    texts = ["".join(rng.choices(PARTS, k=rng.randint(0, 40))) for _ in range(200)]
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    align_eagerly = GraphAligner(tokenizer, GraphTokenizer(tokenizer))
    assert not rows_that_differ(texts, tokenizer, align_eagerly)


def test_by_hand():
    """cafe ##s 中 文 [UNK] fi ##x, and a word of more than 200 characters."""
    texts = ["", " Cafe\u0301s\u200b  中文 qqq\nfix", "a" * 201 + " a"]
    pieces = aligner(wordpiece())(tf.constant(texts))
    assert pieces.ids.row_lengths().numpy().tolist() == [0, 7, 2]
    assert pieces.first.numpy().tolist() == [1, 6, 10, 11, 13, 17, 19, 0, 202]
    assert pieces.last.numpy().tolist() == [4, 6, 10, 11, 15, 18, 19, 200, 202]
    assert pieces.reach.numpy().tolist() == [5, 9, 10, 12, 16, 18, 19, 201, 202]


def test_long_runs_of_unknown_characters(tokenizer):
    texts = [
        "the 🙂" + "🙂中" * 3000 + " a\u0301b",
        "a" + "中\x01" * 4000 + "2009, 🙂🙂",
        "x",
        "🙂" * 5000 + " a " + "\u0903" * 5000,
    ]
    assert not rows_that_differ(texts, tokenizer, aligner(tokenizer))


def test_no_texts(tokenizer):
    graph = aligner(tokenizer)
    assert graph(tf.zeros([0], tf.string)).ids.to_list() == []
    assert graph(tf.constant(["", " \n"])).ids.to_list() == [[], []]


def test_bytes_that_are_not_utf8(tokenizer):
    tokenizer = Tokenizer(tokenizer.model, Normalization(unify_quotes=True))
    raw = [
        b"a\xffb `\xef\xbf` ''",
        b"\xc3",
        b"\xed\xa0\x80 x",
        bytes(range(256)),
        b"\xef\xbb\xbfab",
    ]
    ours = aligner(tokenizer)(tf.constant(raw))
    python = align([text.decode("utf-8", "replace") for text in raw], tokenizer)
    assert ours.ids.row_lengths().numpy().tolist() == python.counts.tolist()
    for name in PLACES:
        assert getattr(ours, name).numpy().tolist() == getattr(python, name).tolist()
    bounds = byte_bounds(tf.constant(raw[:3])).to_list()
    assert bounds == [[0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11], [0, 1], [0, 1, 2, 3, 4, 5]]


@pytest.fixture(scope="module")
def compare(tokenizer):
    graph = aligner(tokenizer)
    return lambda texts: rows_that_differ(texts, tokenizer, graph)


# Characters younger than one of the two Unicode tables are left out: category Cn and later blocks.
ANY = st.text(st.characters(max_codepoint=0x1FFFF, exclude_categories=["Cs", "Cn"]), max_size=40)
OWN = st.lists(st.sampled_from([part for part in PARTS if part != "\ud83d"])).map("".join)


@settings(max_examples=25, deadline=None)
@given(texts=st.lists(ANY | OWN, max_size=12))
def test_any_string(compare, texts):
    # Pieces of equal score may be cut elsewhere by the other release of sentencepiece.
    assert len(compare(texts)) <= 1


def test_digit_commas_of_the_published_vocabulary(shared_data):
    tokenizer = load_tokenizer(shared_data / "vocab" / "albert_en_30k")
    texts = ["in 2009, 1,000 or 3,", "2009,2010, ２００９,", "x", "(¨) ⁇ x 1,½,"]
    assert not rows_that_differ(texts, tokenizer, aligner(tokenizer))
    assert "," in tokenizer.pieces(texts[0])


@pytest.mark.parametrize("vocabulary", ["albert_en_30k", "albert_zh/vocab_chinese.txt"])
@pytest.mark.slow
@pytest.mark.parametrize("step", [1])
def test_real_contexts(shared_data, vocabulary, step):
    tokenizer = load_tokenizer(shared_data / "vocab" / vocabulary)
    texts = set()
    for name in ("xquad.en", "xquad.de", "xquad.zh", "squad2_subset_a"):
        examples = questions_of(str(shared_data / "squad" / f"{name}.json.gz"))
        texts |= {example.context for example in examples}
    chosen = sorted(texts)[::step]
    differ = rows_that_differ(chosen, tokenizer, aligner(tokenizer))
    print(f"{len(differ)} of {len(chosen)} contexts are cut elsewhere")
    assert len(differ) <= 0.005 * len(chosen)
