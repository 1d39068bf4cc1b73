"""Tests that the in-graph tokenizer agrees with the Python one, also in a tf.data pipeline."""

import gc
import gzip
import io
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
import tensorflow_text

from albert_tf.runtime.errors import InputError
from albert_tf.text.graph_tokenizer import (
    GraphTokenizer,
    normalize_in_graph,
    pack_segments,
    split_words_in_graph,
)
from albert_tf.text.normalization import Normalization, normalize
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from albert_tf.text.unknown_characters import LONG, shorten
from albert_tf.text.wordpiece import split_words
from tests.albert_tf.text.wordpiece_test import CORPORA

TEXTS = [
    "In 2009, we paid 1,000, or 3.0, each.",
    "UNwantéd naïve ß ﬁ Ⅳ İ",
    " two  spaces\nand\ta tab ",
    "``quoted'' text",
    "ΑΣ ΣΑΣ.",
    "",
    " ",
    "\0null",
    "a\0\0b",
    "\x85\u200b\ufeffx",
    "[MASK] <pad>",
    "\u0903\u093e combining of class 0 stays",
    "中文、 한국어 🤗",
]


@pytest.fixture(scope="module")
def tiny(comma_tokenizer: Tokenizer) -> Tokenizer:
    return comma_tokenizer


def test_agrees_on_the_reference_texts(shared_data):
    tokenizer = load_tokenizer(shared_data / "vocab" / "albert_en_30k")
    with gzip.open(shared_data / "reference" / "sentencepiece_ids.jsonl.gz", "rt") as lines:
        cases = [json.loads(line) for line in lines]
    found = GraphTokenizer(tokenizer)(tf.constant([case["text"] for case in cases])).to_list()
    residue = [(c, ids) for c, ids in zip(cases, found, strict=True) if ids != c["pieces_ids"]]
    for case, ids in residue:
        print(f"{case['text']!r}: {ids} instead of {case['pieces_ids']}")
        score = tokenizer.vocabulary.processor.get_score  # only a tie may be broken in another way
        assert sum(map(score, ids)) == pytest.approx(sum(map(score, case["pieces_ids"])), abs=1e-3)
    print(f"{len(residue)} of {len(cases)} texts differ")
    assert len(residue) <= 0.005 * len(cases)


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("strip_accents", [True, False])
@pytest.mark.parametrize("unify_quotes", [True, False])
def test_agrees_under_every_normalization(tiny, lowercase, strip_accents, unify_quotes):
    tokenizer = Tokenizer(tiny.model, Normalization(lowercase, strip_accents, unify_quotes))
    assert GraphTokenizer(tokenizer)(tf.constant(TEXTS)).to_list() == tokenizer.encode_batch(TEXTS)


@pytest.fixture(scope="module")
def chinese(shared_data) -> Tokenizer:
    return load_tokenizer(shared_data / "vocab" / "albert_zh" / "vocab_chinese.txt")


def test_wordpiece_agrees_on_real_text(shared_data, chinese):
    encode = tf.function(
        GraphTokenizer(chinese), input_signature=[tf.TensorSpec([None], tf.string)]
    )
    for name in CORPORA:
        with gzip.open(shared_data / f"{name}.txt.gz", "rt", encoding="utf-8") as file:
            lines = [line for number, line in enumerate(file) if number % 10 == 0]
        assert encode(tf.constant(lines)).to_list() == chinese.encode_batch(lines), name


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("strip_accents", [True, False])
@pytest.mark.parametrize("unify_quotes", [True, False])
def test_wordpiece_agrees_under_every_normalization(lowercase, strip_accents, unify_quotes):
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "a",
        "##b",
        "'",
        "`",
        '"',
        "中",
        "É",
        "é",
    ]
    rules = Normalization(lowercase, strip_accents, unify_quotes)
    tokenizer = Tokenizer("\n".join(pieces).encode(), rules)
    long = ["a" + "b" * 199, "a" + "b" * 200, "É``Ab''中中A", "𠀀\U000e0001a\ufa6c"]
    texts = TEXTS + long
    ids = tokenizer.encode_batch(texts)
    assert GraphTokenizer(tokenizer)(tf.constant(texts)).to_list() == ids
    assert (len(ids[-4]), len(ids[-3])) == (200, 1)


def test_words_of_all_characters_but_those_newer_than_tensorflow():
    characters = [chr(c) for c in range(0x20000) if not 0xD800 <= c < 0xE000]
    texts = [f"a{c}b" for c in characters]
    graph = split_words_in_graph(tf.constant(texts), Normalization()).to_list()
    python = split_words(texts, Normalization())
    differ = [
        c for c, g, p in zip(characters, graph, python, strict=True) if [w.decode() for w in g] != p
    ]
    assert len(differ) <= 60  # of all 1,112,064
    assert min(map(ord, differ)) >= 0x2C2F  # added in Unicode 14


def test_normal_forms_of_all_characters_but_those_newer_than_python():
    characters = [chr(c) for c in range(1, 0x20000) if not 0xD800 <= c < 0xE000]
    texts = [f"a{c}b" for c in characters]
    graph = normalize_in_graph(tf.constant(texts), Normalization()).numpy()
    python = normalize(texts, Normalization())
    differ = [c for c, g, p in zip(characters, graph, python, strict=True) if g.decode() != p]
    assert len(differ) < 200  # 158 of all 1,112,063; the two Unicode tables have other dates
    assert all(ord(c) > 0x2000 or not c.isprintable() for c in differ)


# Unknown to the model; unknown and only together, or with what follows, something else; nothing at
# all; a space; known.
STRANGE = ["🙂", "中", "\u0903", "ᄒ", "ᅡ", "e\u0301", "\u0301", "\x01", "\u200b", " ", "a", "the "]


def test_long_runs_of_unknown_characters(tiny):
    rng = np.random.default_rng(0)
    texts = ["🙂" * 5000, "the value " + "🙂中" * 3000 + " in it", "a" * 5000, "short 🙂" * 9]
    for _ in range(40):
        weights = rng.dirichlet(np.full(len(STRANGE), 0.1))  # a few of them make up most of a text
        parts = rng.choice(len(STRANGE), [30, 2], p=weights)
        lengths = rng.geometric(0.005, 30)
        texts += [
            "".join((STRANGE[a] + STRANGE[b]) * n for (a, b), n in zip(parts, lengths, strict=True))
        ]
    assert sum(len(text.encode()) > LONG for text in texts) > 30
    shortened = 0
    for accents in (False, True):
        graph = GraphTokenizer(Tokenizer(tiny.model, Normalization(strip_accents=accents)))
        normal = graph.ops.normalize(tf.constant(texts))
        short, keep = graph.ops.shorten(normal)
        shortened += (tf.strings.length(short) < tf.strings.length(normal)).numpy().sum()
        assert keep.shape == tf.reduce_sum(tf.strings.length(normal, "UTF8_CHAR"))
        wanted = graph.ops.processor.tokenize(normal).to_list()
        assert graph.ops.processor.tokenize(short).to_list() == wanted
    assert shortened > 20


def trained(**options) -> tensorflow_text.SentencepieceTokenizer:
    """A model of a few words, in Latin and Hangul."""
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the value of 하"] * 99),
        model_writer=stream,
        minloglevel=2,
        hard_vocab_limit=False,
        **options,
    )
    return tensorflow_text.SentencepieceTokenizer(stream.getvalue())


def test_long_runs_of_a_model_that_spells_in_bytes():
    model, text = trained(vocab_size=285, byte_fallback=True), tf.constant(["🙂" * 300])
    assert model.tokenize(text).row_lengths().numpy().tolist() == [1201]
    assert shorten(text, model.tokenize)[0].numpy().tolist() == text.numpy().tolist()


def test_long_runs_in_which_two_unknown_characters_are_a_known_one():
    model = trained(vocab_size=20)
    jamo = "\u1112\u1161"  # 하, which the model knows
    assert [model.tokenize([part])[0, -1] for part in jamo] == [0, 0]
    texts = tf.constant(["🙂" * n + jamo + "🙂" * 400 for n in range(256, 256 + 65)])
    short, _ = shorten(texts, model.tokenize)
    assert (tf.strings.length(short) < tf.strings.length(texts)).numpy().all()
    ids = model.tokenize(texts).to_list()
    assert {len(row) for row in ids} == {4}  # a space, unknown, 하, unknown
    assert model.tokenize(short).to_list() == ids


def test_a_million_unknown_characters(tiny):
    graph = GraphTokenizer(tiny)
    graph(tf.constant(["a"]))
    begin = time.process_time()
    ids = graph(tf.constant(["🙂" * 1_000_000, "\U00020000\u0903" * 500_000 + " a"])).to_list()
    assert time.process_time() - begin < 30  # as one run: minutes
    assert ids == tiny.encode_batch(["🙂", "中 a"])


def test_bytes_that_are_not_utf8(tiny):
    raw = [b"a\xffb", b"\xc3", b"\xed\xa0\x80", bytes(range(256))]
    python = tiny.encode_batch([text.decode("utf-8", "replace") for text in raw])
    assert GraphTokenizer(tiny)(tf.constant(raw)).to_list() == python


@pytest.mark.slow
def test_a_dataset_keeps_the_model_alive(tiny):
    def batches() -> tf.data.Dataset:
        graph = GraphTokenizer(tiny)
        texts = tf.data.Dataset.from_tensor_slices(["one value", "in 2009,"]).batch(2)
        return texts.map(lambda batch: graph.pack([graph(batch)], 8))

    dataset = batches()
    gc.collect()
    (packed,) = dataset
    assert packed["input_word_ids"].shape == (2, 8)
    row = packed["input_word_ids"].numpy()[1]
    assert [i for i in row if i] == [2, *tiny.encode("in 2009,"), 3]


def packed_by_hand(a: list[int], b: list[int] | None, seq_length: int) -> tuple[list[int], ...]:
    """Google's truncation, as a loop: the longer loses its last piece, B when they are equal."""
    a, b = list(a), None if b is None else list(b)
    while len(a) + len(b or []) > seq_length - (2 if b is None else 3):
        (a if b is None or len(a) > len(b) else b).pop()
    first, second = [2, *a, 3], [] if b is None else [*b, 3]
    pad = [0] * (seq_length - len(first) - len(second))
    return first + second + pad, [0] * len(first) + [1] * len(second) + pad


@pytest.mark.parametrize("seq_length", [3, 4, 5, 8, 20])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_pack_cuts_the_longer_segment(tiny, seq_length, as_tensor):
    rng = np.random.default_rng(0)
    pairs = [[list(range(5, 5 + n)) for n in rng.integers(0, 12, 2)] for _ in range(60)]
    a, b = (tf.ragged.constant(rows, tf.int32) for rows in zip(*pairs, strict=True))
    length = tf.constant(seq_length) if as_tensor else seq_length
    for segments, second in (([a], False), ([a, b], True)):
        packed = pack_segments(segments, length, tiny.special)
        for row, (one, two) in enumerate(pairs):
            ids, types = packed_by_hand(one, two if second else None, seq_length)
            assert packed["input_word_ids"][row].numpy().tolist() == ids
            assert packed["input_type_ids"][row].numpy().tolist() == types
            assert packed["input_mask"][row].numpy().tolist() == [int(i != 0) for i in ids]
        assert {value.dtype for value in packed.values()} == {tf.int32}


def test_pack_equals_tf_texts_round_robin_trimmer(tiny):
    a = tf.ragged.constant([[5] * n for n in (0, 1, 9, 9, 3, 5)], tf.int32)
    b = tf.ragged.constant([[6] * n for n in (4, 9, 9, 2, 9, 5)], tf.int32)
    cut = tensorflow_text.RoundRobinTrimmer(7).trim([a, b])
    ids = pack_segments([a, b], 10, tiny.special)["input_word_ids"].numpy().tolist()
    for row, (one, two) in enumerate(zip(*(part.to_list() for part in cut), strict=True)):
        assert [i for i in ids[row] if i] == [2, *one, 3, *two, 3]


def test_pack_refuses_what_cannot_be(tiny):
    ids = tf.ragged.constant([[5]], tf.int32)
    with pytest.raises(InputError, match="one or two.*3"):
        pack_segments([ids] * 3, 8, tiny.special)
    with pytest.raises(InputError, match="at least 3.*2"):
        pack_segments([ids] * 2, 2, tiny.special)


def test_shapes_are_known_in_a_graph(tiny):
    graph = GraphTokenizer(tiny)
    pack = tf.function(lambda texts: graph.pack([graph(texts)], 8))
    outputs = pack.get_concrete_function(tf.TensorSpec([None], tf.string)).structured_outputs
    assert {tuple(o.shape) for o in outputs.values()} == {(None, 8)}


def test_pieces_that_the_graph_cannot_hold_are_named():
    pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] a a\0b".split()
    with pytest.raises(InputError, match="has pieces that TensorFlow cannot use: .*label value of"):
        GraphTokenizer(Tokenizer("\n".join(pieces).encode()))


LOWERED = """
import sys
import tensorflow as tf
from albert_tf.text.graph_tokenizer import lower_in_graph
texts = sys.stdin.read().split("\\n")
lowered = [text.decode() for text in lower_in_graph(tf.constant(texts)).numpy()]
print([text for text, low in zip(texts, lowered) if low != text.lower()])
"""


@pytest.mark.slow_parameters("lt_LT.UTF-8")
@pytest.mark.parametrize("language", ["tr_TR.UTF-8", "lt_LT.UTF-8"])
def test_letters_are_lowered_alike_in_every_locale(language: str):
    texts = ["I AM IN ISTANBUL", "\u0130STANBUL", "J\u0303 I\u0300 \u00cc\u00cd\u0128\u012e\u0303"]
    environment = os.environ | {"LC_ALL": language, "LANG": language}
    done = subprocess.run(
        [sys.executable, "-c", LOWERED],
        input="\n".join(texts),
        capture_output=True,
        encoding="utf-8",
        env=environment,
        check=True,
    )
    assert done.stdout == "[]\n"
