"""Tests that a vocab.txt gives BERT's words and pieces, and is a tokenizer like any other."""

import gzip
import pathlib
import pickle
import unicodedata

import pytest

from albert_tf.runtime.errors import InputError
from albert_tf.text.normalization import Normalization
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from albert_tf.text.wordpiece import split_words

PIECES = [
    "[unused1]",
    "[CLS]",
    "[SEP]",
    "[UNK]",
    "[MASK]",
    "un",
    "##aff",
    "##able",
    "##a",
    "a",
    "b",
    "mask",
    "[",
    "]",
    "中",
    "##中",
    "国",
    ",",
    ".",
    "##want",
    "##ed",
    "\u2028",
    "[PAD]",
]
CORPORA = [
    "corpus_zh/hongloumeng_pg24264",
    "corpus_de/buddenbrooks_pg34811",
    "corpus_novels_en/Austen_Emma",
    "corpus_wikitext2/valid",
]
UNCASED, CASED = Normalization(), Normalization(lowercase=False, strip_accents=False)


def made_of(pieces: list[str], *arguments) -> Tokenizer:
    return Tokenizer("\n".join(pieces).encode() + b"\n", *arguments)


@pytest.fixture(scope="module")
def tiny() -> Tokenizer:
    return made_of(PIECES)


@pytest.fixture(scope="module")
def chinese(shared_data) -> pathlib.Path:
    return shared_data / "vocab" / "albert_zh" / "vocab_chinese.txt"


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("unaffable", "un ##aff ##able"),  # the longest first: not un ##a
        ("UNWANTÉD, unwanted.", "unwantéd , un ##want ##ed ."),
        ("中国a中ab", "中 国 a 中 ab"),  # CJK characters are words; ab has no ##b
        ("[MASK] [CLS]", "[ mask ] [ cls ]"),
        ("a\0\ufffd\u200b\x0b\x85a b\u3000a\u2028b\tb\n", "a ##a b a b b"),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_pieces_by_hand(text, pieces):
    tokenizer = made_of(PIECES, Normalization(strip_accents=False))
    assert tokenizer.pieces(text) == pieces.split()
    unknown = PIECES.index("[UNK]")
    ids = [PIECES.index(p) if p in PIECES else unknown for p in pieces.split()]
    assert tokenizer.encode(text) == ids


def test_a_word_of_more_than_200_characters_is_unknown(tiny):
    a, more, unknown = (PIECES.index(p) for p in ("a", "##a", "[UNK]"))
    assert tiny.encode("a" * 200) == [a] + [more] * 199
    assert tiny.encode("a" * 201 + " a") == [unknown, a]


def test_the_cache_keeps_no_long_words():
    tokenizer, texts = made_of(PIECES), ["a" * 200, *("b" * n for n in range(201, 301))]
    assert tokenizer.encode_batch(texts)[1:] == [[PIECES.index("[UNK]")]] * 100
    assert list(tokenizer.vocabulary._known) == ["a" * 200]


def test_special_ids_word_starts_and_decoded_text(tiny):
    special = tiny.special
    assert (special.pad, special.unk, special.cls, special.sep, special.mask) == (22, 3, 1, 2, 4)
    continued = {p for p, start in zip(PIECES, tiny.is_word_start, strict=True) if not start}
    assert continued == {"##aff", "##able", "##a", "##want", "##ed"}  # "##中" is a word of its own
    ids = [special.cls, *tiny.encode("Unaffable 中国, a"), special.sep, special.pad]
    assert tiny.decode(ids) == "unaffable 中国 , a"
    assert tiny.decode(tiny.encode("b zzz")) == "b [UNK]"
    assert (tiny.vocab_size, tiny.id_to_piece(21), tiny.replacements) == (23, "\u2028", {})
    with pytest.raises(InputError, match=r"\[0, 23\).*23"):
        tiny.decode([23])


def test_capital_letters_make_a_vocabulary_cased(tiny):
    assert tiny.normalization == UNCASED  # [CLS] and its like do not count
    assert made_of([*PIECES, "Paris"]).normalization == CASED
    assert made_of([*PIECES, "Paris"]).pieces("Paris Á") == ["Paris", "Á"]
    quotes = Normalization(unify_quotes=True)
    assert split_words(["``É''"], quotes) == [['"', "e", '"']]


def test_saved_and_copied_it_is_the_same(tiny, tmp_path):
    cased = made_of(PIECES, CASED, {"seed": 7})
    cased.save(tmp_path / "tokenizer")
    files = sorted(path.name for path in (tmp_path / "tokenizer").iterdir())
    assert files == ["albert_tokenizer.json", "vocab.txt"]
    for path in (tmp_path, tmp_path / "tokenizer" / "vocab.txt"):
        again = load_tokenizer(path)
        assert (again.normalization, again.training) == (CASED, {"seed": 7})
        assert again.fingerprint == cased.fingerprint != tiny.fingerprint
    assert pickle.loads(pickle.dumps(cased)).encode("un A") == cased.encode("un A") == [5, 3]
    windows = Tokenizer("\r\n".join(PIECES).encode())
    assert windows.encode("unaffable") == tiny.encode("unaffable")


def test_a_piece_that_is_there_twice_is_refused():
    with pytest.raises(InputError, match="once; the model has 'a' in lines 10 and 24. Pass the"):
        Tokenizer("\n".join([*PIECES, "a"]).encode())


def test_a_file_that_is_no_vocabulary_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"must contain \[PAD\].*lacks \[CLS\], \[MASK\]"):
        made_of([piece for piece in PIECES if piece not in ("[CLS]", "[MASK]")])
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"[UNK]\n\xff\n")
    with pytest.raises(InputError, match="must be UTF-8.*vocab.txt"):
        load_tokenizer(path)
    path.write_text("some text\n")
    with pytest.raises(InputError, match="vocab.txt"):
        load_tokenizer(path)


def reference(path: pathlib.Path, rules: Normalization):
    official = pytest.importorskip("official.nlp.tools.tokenization")
    full = official.FullTokenizer(str(path), do_lower_case=rules.lowercase)
    return lambda text: full.convert_tokens_to_ids(full.tokenize(text))


@pytest.mark.parametrize("rules", [UNCASED, CASED], ids=["uncased", "cased"])
def test_real_text_gets_the_ids_of_model_gardens_tokenizer(shared_data, chinese, rules):
    tokenizer = Tokenizer(chinese.read_bytes(), rules)
    encode = reference(chinese, rules)
    for name in CORPORA:
        with gzip.open(shared_data / f"{name}.txt.gz", "rt", encoding="utf-8") as file:
            lines = [line for number, line in enumerate(file) if number % 40 == 0]
        assert len(lines) > 90
        assert tokenizer.encode_batch(lines) == [encode(line) for line in lines], name


def test_every_kind_of_character_is_treated_as_model_gardens_tokenizer_does(chinese):
    """All that are neither letters nor symbols, and samples of the others."""
    codes = [c for c in range(0x110000) if unicodedata.category(chr(c))[0] in "PZCM" and c % 7 < 2]
    codes = [c for c in codes if unicodedata.category(chr(c)) not in ("Cs", "Co", "Cn")]
    codes += [*range(0x3000, 0x110000, 997), 0xFA6C]  # the last is a CJK character beyond, in NFD
    texts = [f"a{chr(c)}中{chr(c)}é" for c in codes if not 0xD800 <= c < 0xE000]
    tokenizer, encode = load_tokenizer(chinese), reference(chinese, UNCASED)
    assert [t for t in texts if tokenizer.encode(t) != encode(t)] == []
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
