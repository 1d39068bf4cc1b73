"""`data.pairs`: neighbors, crops and headings of a small corpus, and what is left out."""

import dataclasses
import gzip
import json
import pathlib
import re

import pytest

from albert_tf.runtime.errors import InputError
from data.corpora.passage_pairs import comparable, is_heading
from data.pairs import PairsOptions, main

STORY = ["One two three.", "Four five six seven.", "Eight nine.", "Ten eleven twelve.", "Thirteen."]


@pytest.fixture
def corpus(tmp_path) -> str:
    """Two documents; the second begins with a heading."""
    texts = (" ".join(STORY), "\n".join(["The Sea", "", *(f"Wave {i} rose.\n" for i in range(3))]))
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text)
    return f"text:{tmp_path}/[01].txt"


def pairs_of(corpus: str, path: pathlib.Path, **options) -> list[tuple[str, str]]:
    main(PairsOptions(corpus, str(path), document_boundary="file", **options))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert all({*row} == {"text_a", "text_b"} for row in rows)
    return [(row["text_a"], row["text_b"]) for row in rows]


def test_neighbors_of_whole_sentences(corpus, tmp_path):
    found = pairs_of(corpus, tmp_path / "out", max_words=7, min_words=3)
    assert found == [
        ("One two three. Four five six seven.", "Eight nine. Ten eleven twelve. Thirteen."),
        ("The Sea Wave 0 rose.", "Wave 1 rose. Wave 2 rose."),
    ]
    shorter = pairs_of(corpus, tmp_path / "out", max_words=4, min_words=2)
    assert shorter == [
        ("One two three.", "Four five six seven."),
        ("Eight nine.", "Ten eleven twelve. Thirteen."),
        ("The Sea", "Wave 0 rose."),
        ("Wave 1 rose.", "Wave 2 rose."),
    ]


def test_crops_are_runs_of_words_that_depend_on_the_seed(corpus, tmp_path):
    found = pairs_of(corpus, tmp_path / "out", kind="crops", max_words=4, min_words=2)
    wholes = [" ".join(STORY), "The Sea Wave 0 rose. Wave 1 rose. Wave 2 rose."]
    assert found and all(any(text in whole for whole in wholes) for pair in found for text in pair)
    assert {len(text.split()) for pair in found for text in pair} <= {2, 3, 4}
    same = pairs_of(corpus, tmp_path / "out", kind="crops", max_words=4, min_words=2)
    other = pairs_of(corpus, tmp_path / "out", kind="crops", max_words=4, min_words=2, seed=1)
    assert found == same != other


def test_crops_divide_no_character(tmp_path):
    """In Thai, each consonant with its marks is a word; words of Latin letters are whole."""
    syllables, size = "ที่ นี่ มี ดี กิน ปู albert".split(), 6
    (tmp_path / "a.txt").write_text("".join(syllables) * 20)
    found = pairs_of(
        f"text:{tmp_path}/a.txt", tmp_path / "out", kind="crops", max_words=size, min_words=2
    )
    units = {"ที่", "นี่", "มี", "ดี", "กิ", "น", "ปู", "albert"}
    assert found
    for text in {text for pair in found for text in pair}:
        parts = re.findall("|".join(sorted(units, key=len, reverse=True)), text)
        assert "".join(parts) == text and size / 2 <= len(parts) <= size


def test_headings(corpus, tmp_path):
    found = pairs_of(corpus, tmp_path / "out", kind="headings", max_words=7, min_words=3)
    assert found == [("The Sea", "Wave 0 rose. Wave 1 rose.")]


@pytest.mark.parametrize(
    "text", ["यह छोटा वाक्य है।", "هل هذا عنوان؟", "短い文。」", "A note:", "End.)"]
)
def test_what_ends_in_a_mark_is_no_heading(text):
    assert not is_heading(text) and is_heading(text.rstrip("।؟。」:.)"))


@pytest.mark.parametrize(
    ("text", "excluded", "is_dropped"),
    [
        ("Das scho\u0308ne Haus.", "Das sch\u00f6ne Haus", True),  # decomposed, as macOS writes
        ("यह दीन है।", "यह दिन है।", False),  # another word: another vowel sign
        ("An _old_ song", "An old song.", True),
    ],
)
def test_equal_sentences_have_the_same_words(text, excluded, is_dropped):
    assert (comparable(text) == comparable(excluded)) is is_dropped


def test_sentences_of_a_test_set_are_dropped(corpus, tmp_path, capsys):
    (tmp_path / "test.txt").write_text("A first one. Four FIVE six, seven! And a last one.\n\n")
    exclude = (str(tmp_path / "test.txt"),)
    found = pairs_of(corpus, tmp_path / "out", max_words=4, min_words=1, exclude=exclude)
    assert found[0] == ("One two three.", "Eight nine.")
    assert "1 sentences dropped that are in --exclude" in capsys.readouterr().out
    assert len(pairs_of(corpus, tmp_path / "out", max_words=4, min_words=1, max_pairs=1)) == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("test.jsonl", '{"text_a": "x", "text_b": "Four FIVE six, seven!"}\n'),
        ("test.csv", "text;label\nFour FIVE six, seven!;a\n"),
        ("lines.csv", "Four FIVE six; seven!\nx\n"),
        ("excel.csv", 'sep=;\n"Four FIVE six, seven!";a\n'),
        ("test.tsv", "id\ttext\n1\tFour FIVE six, seven!\n"),
        ("test.conll", "Four O\nFIVE O\nsix O\n, O\nseven O\n! O\n"),
    ],
)
def test_the_texts_of_datasets_are_dropped(corpus, tmp_path, capsys, name, content):
    (tmp_path / name).write_text(content)
    pairs_of(corpus, tmp_path / "out", max_words=4, min_words=1, exclude=(f"{tmp_path / name}",))
    assert "1 sentences dropped that are in --exclude" in capsys.readouterr().out


def test_headings_need_whole_documents(tmp_path):
    (tmp_path / "a.txt").write_text("On tides\n\nThe moon moves the sea. It does so twice a day.\n")
    corpus, pairs = f"text:{tmp_path}/*.txt", tmp_path / "pairs.jsonl"
    options = PairsOptions(corpus, str(pairs), kind="headings", min_words=1)
    with pytest.raises(InputError, match="or --document_boundary=file if a blank line ends no"):
        main(options)
    main(dataclasses.replace(options, document_boundary="file"))
    assert json.loads(pairs.read_text())["text_a"] == "On tides"


def test_a_compressed_file(corpus, tmp_path):
    plain, packed = tmp_path / "a", tmp_path / "a.jsonl.gz"
    for path in (plain, packed, packed):
        main(PairsOptions(corpus, str(path), max_words=7, min_words=3))
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.txt", "1.txt", "a", "a.jsonl.gz"]
    with pytest.raises(InputError, match="--output can be compressed as .gz only. .*a.jsonl.xz"):
        main(PairsOptions(corpus, str(tmp_path / "a.jsonl.xz")))


@pytest.mark.parametrize("name", ["0.txt", "excluded.txt"])
def test_what_is_read_is_not_replaced(corpus, tmp_path, name):
    (tmp_path / "excluded.txt").write_text("Thirteen.")
    before = (tmp_path / name).read_text()
    with pytest.raises(InputError, match="--output must not be a file of --(corpus|exclude)"):
        pairs_of(corpus, tmp_path / name, exclude=(str(tmp_path / "excluded.txt"),))
    assert (tmp_path / name).read_text() == before


def test_refused_options_and_a_dry_run_leave_nothing(corpus, tmp_path, capsys):
    out = tmp_path / "out"
    with pytest.raises(InputError, match="no pairs of --kind=neighbors"):
        pairs_of(corpus, out, min_words=100)
    with pytest.raises(InputError, match="--kind must be one of neighbors, crops, headings"):
        PairsOptions(corpus, str(out), "triplets")
    main(PairsOptions(corpus, str(out), dry_run=True))
    assert not out.exists() and "can be read" in capsys.readouterr().out


def test_characters_of_chinese_are_its_words(tmp_path):
    (tmp_path / "0.txt").write_text("".join(f"第{i}天下雨了。" for i in range(10, 18)))
    corpus = f"text:{tmp_path}/0.txt"
    first, second = pairs_of(corpus, tmp_path / "out", max_words=10)[0]
    assert first == "第10天下雨了。 第11天下雨了。" and second == "第12天下雨了。 第13天下雨了。"
    crops = pairs_of(corpus, tmp_path / "out", max_words=10, kind="crops")
    assert crops and {len(text) for pair in crops for text in pair} <= {*range(5, 11)}


def test_the_key_of_the_text(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"body": " ".join(STORY)}))
    options = PairsOptions(f"jsonl:{tmp_path}/a.jsonl", f"{tmp_path}/out", text_column="body")
    main(dataclasses.replace(options, max_words=7, min_words=3))
    assert (tmp_path / "out").read_text().startswith('{"text_a": "One two three. Four five')
