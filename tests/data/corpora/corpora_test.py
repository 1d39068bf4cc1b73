"""Tests of the documents of each kind of corpus, and that each mistake is told in one line."""

import bz2
import gzip
import itertools
import json
import lzma
import os
import random
import subprocess
import sys
import zipfile

import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.runtime.files.text_files import TextFile
from data.corpora import readers, texts
from data.corpora.corpus import (
    Document,
    NumberedCorpus,
    corpus_bytes,
    corpus_fingerprint,
    read_documents,
    split_of,
)
from data.corpora.texts import MAX_DOCUMENT_CHARS

NOVEL_HEADING = r"regex:^\s*(?:CHAPTER|Chapter|VOLUME|BOOK|Book) [0-9IVXLC]+"
WIKITEXT_HEADING = "regex:^ = [^=].*(?<!=) = $"
CHINESE_HEADING = r"regex:^\s*第[一二三四五六七八九十百零]+回"
GERMAN_HEADING = r"regex:^\w+ (?:Teil|Kapitel)$"


def read(corpus, *args, **kwargs):
    return [document.sentences for document in read_documents(corpus, *args, **kwargs)]


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


TEXT = "\ufeffTitle\r\n\r\nOne is\r\nwrapped. Two\r\nis not.\r\n\r\n\r\nChapter 2\r\nThree.\r\n"


@pytest.mark.parametrize(
    ("boundary", "expected"),
    [
        ("blank_line", [("Title",), ("One is wrapped.", "Two is not."), ("Chapter 2 Three.",)]),
        ("file", [("Title", "One is wrapped.", "Two is not.", "Chapter 2 Three.")]),
        (r"regex:^Chapter \d", [("Title", "One is wrapped.", "Two is not."), ("Three.",)]),
    ],
)
def test_text_ends_a_document_where_the_boundary_says(tmp_path, boundary, expected):
    write(tmp_path / "a.txt", TEXT)
    assert read(f"text:{tmp_path}/*.txt", boundary) == expected


@pytest.mark.parametrize("boundary", ["blank_line", "file", "regex:^==", "regex:^word 7$"])
@pytest.mark.parametrize("block_bytes", [1, 9, 2**18])
def test_the_lines_of_documents(tmp_path, monkeypatch, boundary, block_bytes):
    """Every document stands where it is said to, whatever the blocks and the division."""
    monkeypatch.setattr(TextFile.blocks, "__defaults__", (block_bytes,))
    monkeypatch.setattr(texts, "MAX_DOCUMENT_CHARS", 40)
    rng = random.Random(block_bytes)
    lines = [rng.choice(["", "", " \t", "==", f"word {i}", f"some words {i}"]) for i in range(300)]
    path = write(tmp_path / "a.txt", "\n".join(lines))
    corpus = NumberedCorpus(f"text:{path}", boundary, "strict", None)
    found = [document for _, document in corpus.documents(corpus.parts())]
    assert len(found) > 20
    for document in found:
        first, *others = document.text.split("\n")
        assert document.keeps_lines and first in lines[document.line - 1]
        rest = lines[document.line : document.line + len(others)]
        assert all(line.startswith(part) for line, part in zip(rest, others, strict=True))


def test_files_come_sorted_gzip_or_not_and_a_document_never_crosses_files(tmp_path):
    b = write(tmp_path / "b.txt", "Last.")
    a = write(tmp_path / "sub" / "a.txt.gz", gzip.compress(b"First.", mtime=0))
    odd = write(tmp_path / "[1].txt", "Odd.")
    expected = [Document("Last.", str(b)), Document("First.", str(a))]
    documents = list(read_documents(f"text:{tmp_path}/**/?*.txt*"))
    assert documents == [Document("Odd.", str(odd)), *expected]
    assert read(f"text:{odd}") == [("Odd.",)]


def test_jsonl_has_a_document_a_line(tmp_path):
    rows = [{"text": "One.\nTwo is\nhere.\n\nNo end"}, {"text": ""}, {"text": "Half \ud800 pair."}]
    path = write(tmp_path / "a.jsonl", "\n\n".join(json.dumps(row) for row in rows))
    with pytest.raises(
        InputError, match=r"^--corpus: .*a\.jsonl:5 must be JSON: \\ud800 is half a"
    ):
        read(f"jsonl:{path}")
    assert read(f"jsonl:{path}", errors="replace") == [
        ("One.", "Two is here.", "No end"),
        ("Half ? pair.",),
    ]


def test_wikiextractor_drops_the_repeated_title(tmp_path):
    text = (
        '\n<doc id="1" url="u?a=1" title="A &amp; "B"">\nA & "B"\n\nIt is. It was.\n\nEnd.\n'
        '</doc>\n<doc id="2" url="u" title="C">\nOther.\n\n</doc>\n'
        '<doc id="3" url="u" title="D &amp; E">\nD &amp; E\n\nA &lt; B &amp;lt; "C".\n\n</doc>\n'
    )
    path = write(tmp_path / "wiki_00", text)
    found = read(f"wikiextractor:{path}")  # the third as WikiExtractor 3 writes it, escaped once
    assert found == [("It is.", "It was.", "End."), ("Other.",), ('A < B &lt; "C".',)]


def test_squad_and_race_give_each_passage_once(tmp_path):
    paragraphs = [
        {"context": "One. Two.", "qas": []},
        {"context": "One. Two."},
        {"context": "Tree"},
    ]
    others = [{"context": "Tree"}, {"context": "Half \ud800 pair."}]
    for name, contexts in (("dev-1", paragraphs), ("dev-2", others)):
        write(tmp_path / f"{name}.json", json.dumps({"data": [{"paragraphs": contexts}]}))
    found = [("One.", "Two."), ("Tree",), ("Half ? pair.",)]
    assert read(f"squad:{tmp_path}/dev-*.json", errors="replace") == found
    with pytest.raises(InputError, match=r"whole character, or pass --errors=replace\. Received"):
        read(f"squad:{tmp_path}/dev-*.json")
    high, middle = ({"article": f"{level} is\nit. Yes."} for level in ("High", "Middle"))
    write(tmp_path / "RACE" / "dev" / "middle" / "9.txt", json.dumps(middle))
    write(tmp_path / "RACE" / "dev" / "high" / "1.txt", json.dumps(high))
    write(tmp_path / "RACE" / "all.txt", json.dumps(middle) + "\n" + json.dumps(high))
    assert read(f"race:{tmp_path}/RACE") == [("Middle is it.", "Yes."), ("High is it.", "Yes.")]
    assert read(f"race:{tmp_path}/RACE/dev") == [("High is it.", "Yes."), ("Middle is it.", "Yes.")]


def test_tfds_reads_what_lies_there_and_downloads_nothing(tmp_path):
    tfds = pytest.importorskip("tensorflow_datasets")
    rows = [{"label": 1, "text": "One.\n\nTwo."}, {"label": 0, "text": "Three."}]
    features = tfds.features.FeaturesDict(
        {"label": tfds.features.ClassLabel(num_classes=2), "text": tfds.features.Text()}
    )
    tfds.dataset_builders.store_as_tfds_dataset(
        name="tiny",
        version="1.0.0",
        data_dir=str(tmp_path),
        features=features,
        split_datasets={"train": tfds_rows(rows)},
    )
    documents = list(read_documents("tfds:tiny", data_dir=str(tmp_path)))
    assert sorted(documents, key=str) == [
        Document("One.\n\nTwo.", "tiny"),
        Document("Three.", "tiny"),
    ]
    assert corpus_bytes("tfds:tiny", str(tmp_path)) > 0
    assert len(corpus_fingerprint("tfds:tiny", str(tmp_path))) == 16


def test_a_file_whose_name_is_no_utf8(tmp_path):
    with open(os.fsencode(tmp_path) + b"/caf\xe9.txt", "w") as file:
        file.write("One.")
    assert len(corpus_fingerprint(f"text:{tmp_path}/*.txt")) == 16
    with pytest.raises(InputNotFoundError, match=r"tfds build nothing_here --data_dir="):
        read_documents("tfds:nothing_here", data_dir=str(tmp_path))


def tfds_rows(rows):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices({key: [row[key] for row in rows] for key in rows[0]})


def test_size_and_fingerprint_follow_the_files(tmp_path):
    path = write(tmp_path / "a.txt", "One.")
    packed = write(tmp_path / "b.txt.gz", gzip.compress(b"Two.", mtime=0))
    corpus = f"text:{tmp_path}/*"
    assert corpus_bytes(corpus) == 4 + 3 * packed.stat().st_size
    before = corpus_fingerprint(corpus)
    assert before == corpus_fingerprint(corpus) and len(before) == 16
    write(path, "One!")
    assert corpus_fingerprint(corpus) != before
    write(path, "One.").rename(tmp_path / "aa.txt")
    assert corpus_fingerprint(corpus) != before


@pytest.mark.parametrize(
    ("name", "content", "kind", "message"),
    [
        (
            "a.txt",
            b"Caf\xc3\xa9\n caf\xe9.",
            "text",
            r"a\.txt:2 must be UTF-8.*0xe9 at offset 10\.",
        ),
        ("a.jsonl", '{"text": "x"}\n\n{"text"', "jsonl", r"a\.jsonl:3 must be JSON"),
        ("a.jsonl", '{"texts": "x"}', "jsonl", r"a\.jsonl:1 must be a JSON object .*`text`"),
        ("a.jsonl", "[1]", "jsonl", r"a\.jsonl:1 must be a JSON object"),
        ("a.jsonl", '{"text": "x", "n": NaN}', "jsonl", r"a\.jsonl:1 must be JSON: NaN is not a"),
        ("a.json", '{"version": 1}', "squad", r"a\.json must be in SQuAD's format"),
        (
            "a.json",
            '{"data": [{"paragraphs": [{"context": null}]}]}',
            "squad",
            r"a\.json must be in SQuAD's format",
        ),
        (
            "a.txt.gz",
            gzip.compress(b"One. " * 99, mtime=0)[:-9],
            "text",
            r"must be a complete gzip file",
        ),
        ("a.txt.gz", b"plain", "text", r"must be a complete gzip file"),
        (
            "a.jsonl",
            '{"n": ' + "9" * 5000 + "}",
            "jsonl",
            r"a\.jsonl:1 must be JSON: .*5000 digits",
        ),
        ("a.jsonl", "[" * 100_000, "jsonl", r"a\.jsonl:1 must be JSON: .*recursion"),
        ("a.json", "[" * 100_000, "squad", r"a\.json must be JSON: .*recursion"),
        (
            "wiki_00",
            "\n<doc>\nOpen.",
            "wikiextractor",
            r"wiki_00:2 opens a <doc> that must be closed",
        ),
        (
            "wiki_00",
            "<doc>\nA.\n<doc>\nB.\n</doc>\n",
            "wikiextractor",
            r"wiki_00:1 opens a <doc>",
        ),
        (
            "wiki_00",
            "<doc>\nA.\n</doc>\nB.",
            "wikiextractor",
            r"wiki_00:4 must be between <doc>",
        ),
        ("wiki_00", "</doc>", "wikiextractor", r"wiki_00:1 must be between <doc>"),
        ("a.txt", " \n\0\n", "text", r"must contain text.*no sentence"),
    ],
)
def test_text_that_cannot_be_read_is_named_with_its_place(tmp_path, name, content, kind, message):
    path = write(tmp_path / name, content)
    with pytest.raises(InputError, match=message) as raised:
        read(f"{kind}:{path}")
    assert "\n" not in str(raised.value)


def test_a_json_file_among_wikiextractors_is_named(tmp_path):
    write(tmp_path / "wiki_00", "<doc>\nA.\n</doc>\n")
    write(tmp_path / "wiki_01", '{"id": "1", "text": "B."}\n')
    with pytest.raises(InputError, match=r"wiki_01:1 must be between .* use jsonl:"):
        read(f"wikiextractor:{tmp_path}/wiki_*")


def test_bytes_that_are_not_utf8_can_be_replaced(tmp_path):
    path = write(tmp_path / "a.txt", b"caf\xe9. Yes.")
    assert read(f"text:{path}", errors="replace") == [("caf\ufffd.", "Yes.")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x",), r"KIND:WHERE, such as text:.*, jsonl, .*, python_docs\. Received: 'x'\.$"),
        (("text",), r"must be text:WHERE"),
        (("text:a", "regex:("), r"must be a regular expression: .* Received: 'regex:\('"),
        (("text:a", "blank"), r"blank_line, file or regex:RE\. Received: 'blank'"),
        (("jsonl:a", "file"), r"--document_boundary applies only to the kinds text, files,"),
        (("text:a", "file", "ignore"), r"one of strict, replace. Received: 'ignore'"),
    ],
)
def test_wrong_arguments_are_refused_at_the_call(arguments, message):
    with pytest.raises(InputError, match=message):
        read_documents(*arguments)


def test_a_folder_in_place_of_its_files(tmp_path):
    with pytest.raises(
        InputNotFoundError, match=r"is a folder\. Name its files, as in KIND:'.*/\*'"
    ):
        read_documents(f"text:{tmp_path}")


@pytest.mark.parametrize("kind", ["text", "jsonl", "wikiextractor", "squad", "race"])
def test_a_glob_that_matches_nothing_is_named_with_the_working_directory(kind):
    with pytest.raises(InputNotFoundError, match="nowhere/x") as raised:
        read_documents(f"{kind}:nowhere/x*")
    assert os.getcwd() in str(raised.value)


def test_a_pipe_is_refused_and_a_glob_takes_files_only(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"--corpus: .*/pipe must be a file\. Received: a pipe\."):
        read_documents(f"text:{tmp_path}/pipe")
    write(tmp_path / "a.txt", "One.")
    (tmp_path / "folder.txt").mkdir()
    write(tmp_path / ".hidden.txt", "Hidden.")
    assert read(f"text:{tmp_path}/*") == [("One.",)]
    note = (
        f"note: --corpus: these matches of '{tmp_path}/*' are not files and are left out: "
        f"{tmp_path}/folder.txt (a folder), {tmp_path}/pipe (a pipe).\n"
    )
    assert capsys.readouterr().err == note, "once"
    assert read(f"text:{tmp_path}/**") == [("One.",)]
    assert capsys.readouterr().err.endswith(f"left out: {tmp_path}/pipe (a pipe).\n")


@pytest.mark.parametrize("kind", ["text", "sentences", "jsonl", "wikiextractor", "squad", "race"])
def test_a_binary_file_in_the_folder_is_named_before_the_work_begins(tmp_path, kind):
    write(tmp_path / "a.txt", "One.")
    write(tmp_path / "b.txt.png", b"\x89PNG\r\n\x1a\n\0\0")
    where = f"{kind}:{tmp_path}" + ("" if kind == "race" else "/*")
    corpus = NumberedCorpus(where, "blank_line", "replace", None)
    with pytest.raises(InputError, match=r"^--corpus: .*/b\.txt\.png must be text\. .* an image\."):
        corpus.require_text()


FORMATS = {".bz2": bz2.compress, ".xz": lzma.compress, ".gz": gzip.compress, "": bytes}


def test_each_file_of_a_zip_is_read_like_one_of_its_own(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("b/two.txt", "Two.\n\nTree.")
        archive.writestr("a.txt.gz", gzip.compress(b"One."))
    documents = list(read_documents(f"text:{tmp_path}/*.zip"))
    names = [f"{tmp_path}/a.zip/{name}" for name in ("a.txt.gz", "b/two.txt", "b/two.txt")]
    expected = zip(("One.", "Two.", "Tree."), names, strict=True)
    assert documents == [Document(*each) for each in expected]
    numbered = NumberedCorpus(f"text:{tmp_path}/*.zip", "file", "strict", None)
    assert [number for number, _ in numbered.documents(numbered.parts())] == [0, 1]


def test_compressed_corpora_of_others(shared_data):
    folder = shared_data / "odd_files"
    texts = {read_one(f"text:{folder}/C01/{name}") for name in os.listdir(folder / "C01")}
    assert len(texts) == 1 and len(texts.pop()) > 1
    assert len(read(f"wikiextractor:{folder}/C02/wiki_00.bz2")) >= 1


def read_one(corpus):
    return tuple(itertools.chain.from_iterable(read(corpus)))


@pytest.mark.parametrize("ends", [b"\r", b"\r\n", b"\r\r\n"])
@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("text", b"One.\nTwo.\n\nTree.\n"),
        ("sentences", b"One.\nTwo.\n\nTree.\n"),
        ("wikiextractor", b"<doc>\nOne.\nTwo.\n</doc>\n<doc>\nTree.\n</doc>\n"),
        ("jsonl", b'{"text": "One. Two."}\n{"text": "Tree."}\n'),
    ],
)
def test_the_line_ends_of_every_system(tmp_path, kind, content, ends):
    path = write(tmp_path / "a", content.replace(b"\n", ends))
    assert read(f"{kind}:{path}") == [("One.", "Two."), ("Tree.",)]


@pytest.mark.parametrize("kind", ["text", "sentences", "jsonl", "wikiextractor", "squad", "race"])
def test_a_document_that_is_too_long_is_divided_and_noted(tmp_path, capsys, kind):
    line = "Ab cd.\n"
    text = line * (2 * MAX_DOCUMENT_CHARS // len(line)) + "x" * (MAX_DOCUMENT_CHARS + 9)
    content = {
        "text": text,
        "sentences": text,
        "jsonl": "\n" + json.dumps({"text": text}),
        "wikiextractor": f"<doc>\n{text}\n</doc>\n",
        "squad": json.dumps({"data": [{"paragraphs": [{"context": text}]}]}),
        "race": json.dumps({"article": text}),
    }[kind]
    path = write(tmp_path / "a", content)
    corpus = NumberedCorpus(f"{kind}:{path}", "blank_line", "strict", None)
    documents = [document for _, document in corpus.documents(corpus.parts())]
    assert "".join(document.text for document in documents).replace("\n", "") == text.replace(
        "\n", ""
    )
    assert [len(document.text) for document in documents][0] == MAX_DOCUMENT_CHARS // 7 * 7 - 1
    assert all(len(document.text) <= MAX_DOCUMENT_CHARS for document in documents)
    assert capsys.readouterr().err == (
        f"note: {path} has a document of more than 4,194,304 characters, so it is divided into "
        "several.\n"
    )


def test_a_document_of_the_greatest_length_is_whole(tmp_path, capsys):
    path = write(tmp_path / "a.txt", "x" * (MAX_DOCUMENT_CHARS - 1) + "\n\ny")
    lengths = [len(document.text) for document in read_documents(f"text:{path}")]
    assert lengths == [MAX_DOCUMENT_CHARS - 1, 1] and not capsys.readouterr().err


# 105 MB of each in a small file
BOMBS = {"one line": b"words " * 2**17, "no blank": b"x" * 2**19, "lines": b"Ab cd.\n" * 2**16}
BOMBS["CR"] = BOMBS["lines"].replace(b"\n", b"\r")


@pytest.mark.parametrize("bomb", BOMBS)
def test_the_memory_does_not_grow_with_the_text(tmp_path, bomb):
    times = 105_000_000 // len(BOMBS[bomb])
    with gzip.open(tmp_path / "a.gz", "wb", 1) as file:
        for _ in range(times):
            file.write(BOMBS[bomb])
    program = (
        "import re, sys; from data.corpora.corpus import NumberedCorpus\n"
        f"corpus = NumberedCorpus('text:{tmp_path}/a.gz', 'blank_line', 'strict', None)\n"
        "texts = (document.text for _, document in corpus.documents(corpus.parts()))\n"
        "print(sum(len(text.replace('\\n', '')) for text in texts))\n"
        "assert not {'tensorflow', 'tensorflow_datasets'} & set(sys.modules)\n"
        "print(re.search(r'VmHWM:\\s*(\\d+) kB', open('/proc/self/status').read())[1])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    size, memory_kb = map(int, done.stdout.split())
    assert size == times * len(BOMBS[bomb].translate(None, b"\r\n"))
    assert memory_kb < 200_000


@pytest.mark.parametrize(
    ("corpus", "boundary", "documents", "first"),
    [
        ("corpus_novels_en/Austen_Pride*", NOVEL_HEADING, 62, "It is a truth universally"),
        ("corpus_novels_en/Austen_Sense*", NOVEL_HEADING, 51, "The family of Dashwood"),
        ("corpus_wikitext2/valid*", WIKITEXT_HEADING, 60, "Air Vice Marshal Frank"),
        ("corpus_zh/*", CHINESE_HEADING, 122, "詩云"),
        ("corpus_de/*", GERMAN_HEADING, 98, "»Was ist das."),
    ],
)
def test_real_books_fall_into_chapters(shared_data, corpus, boundary, documents, first):
    read_all = read(f"text:{shared_data}/{corpus}", boundary)
    assert len(read_all) == documents
    assert any(sentences[0].startswith(first) for sentences in read_all[:3])
    lengths = sorted(len(sentence) for sentences in read_all for sentence in sentences)
    assert 15 < lengths[len(lengths) // 2] < 150 and lengths[-1] < 5000


def test_sentences_are_lines_and_blank_lines_divide_documents(tmp_path):
    """As Google's tool takes them: nothing is joined or split; blanks are made single spaces."""
    path = tmp_path / "lines.txt"
    path.write_bytes(
        b"\xef\xbb\xbfDr. Who came. He left\r\nand so on.\n \n\n\n"
        b"Tab\there  \xc2\xa0and \0there.\nA.\n"
    )
    found = [document.sentences for document in read_documents(f"sentences:{path}")]
    assert found == [("Dr. Who came. He left", "and so on."), ("Tab here and there.", "A.")]


def test_the_split_of_a_text_never_changes():
    """Another hash would mix the held-out documents of published scores into the training."""
    # blake2b (8 bytes) of the sentences, joined by line ends, as shares of 2**64.
    for text, share in ("One sentence.", 0.2078), ("One sentence. Another one.", 0.2784):
        document = Document(text, "a.txt")
        assert split_of(document, share + 1e-3) == "heldout"
        assert split_of(document, share - 1e-3) == "train"


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ('<doc id="1" title="A "b" <i>c</i>" x="2"> ', 'A "b" <i>c</i>" x="2'),
        ('<doc id="1">\r', ""),
        ('<doc subtitle="a">', ""),
        ("<doc>", ""),
        ('<doc title="a> b', None),
        ("<doc> text>", None),
        ("<document>", None),
        ('<doc title="a">b">', 'a">b'),
        ("<doc" + ' title="' * 100_000, None),
        ("<doc" + ' title="' * 100_000 + ">", ' title="' * 99_998 + " title="),
    ],
)
def test_a_line_that_opens_a_document_has_a_title(line: str, title: str | None):
    assert readers._title(line) == title
