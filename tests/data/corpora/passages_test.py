"""Tests of reading the passages of SQuAD and RACE, and gzip and TFDS names of every kind."""

import gzip
import json
import pathlib
import socket

import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from data.corpora.corpus import read_documents

RACE = {"answers": ["A"], "options": [["a", "b", "c", "d"]], "questions": ["Who?"], "id": "x"}


def read(corpus: str) -> list[tuple[str, ...]]:
    return [document.sentences for document in read_documents(corpus)]


def without_blanks(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize(
    ("name", "passages"),
    [("squad2_subset_a", 301), ("xquad.en", 240), ("xquad.de", 240), ("xquad.zh", 240)],
)
def test_real_squad_passages_come_whole_and_in_order(shared_data, name, passages):
    """The numbers of passages are counted in the files; nothing but blanks is lost of them."""
    path = shared_data / "squad" / f"{name}.json.gz"
    content = json.loads(gzip.decompress(path.read_bytes()))
    contexts = [p["context"] for entry in content["data"] for p in entry["paragraphs"]]
    found = read(f"squad:{path}")
    assert len(found) == len(contexts) == passages
    for sentences, context in zip(found, contexts, strict=True):
        assert without_blanks("".join(sentences)) == without_blanks(context)
    assert sum(map(len, found)) > 3 * passages  # sentences


def race_folder(folder: pathlib.Path) -> pathlib.Path:
    """As the released archive: RACE/{train,dev}/{middle,high}/<id>.txt, one JSON a file."""
    for part in ("dev", "train"):
        for level in ("high", "middle"):
            path = folder / "RACE" / part / level / "12.txt"
            path.parent.mkdir(parents=True)
            article = f"The {part} of {level}.\nIt has two lines."
            path.write_text(json.dumps(RACE | {"article": article}))
    return folder / "RACE"


def test_race_is_read_from_the_archive_and_from_merged_files(tmp_path):
    folder = race_folder(tmp_path)
    names = ["dev of high", "dev of middle", "train of high", "train of middle"]
    expected = [(f"The {name}.", "It has two lines.") for name in names]
    assert read(f"race:{folder}") == expected
    assert read(f"race:{folder}/dev/middle") == expected[1:2]
    merged = tmp_path / "merged" / "all.txt"
    merged.parent.mkdir()
    merged.write_text("\n".join(path.read_text() for path in sorted(folder.rglob("*.txt"))))
    assert read(f"race:{merged.parent}") == read(f"race:{merged}") == expected


def test_a_race_file_without_an_article_is_named(tmp_path):
    (tmp_path / "1.txt").write_text(json.dumps(RACE))
    with pytest.raises(InputError, match=r"1\.txt:1 must be a JSON object with text .*`article`"):
        read(f"race:{tmp_path}")


FILES = {
    "text": "A dog. A cat.\n\nA cow.\n",
    "sentences": "A dog.\nA cat.\n\nA cow.\n",
    "jsonl": '{"text": "A dog. A cat."}\n{"text": "A cow."}\n',
    "wikiextractor": '<doc id="1" title="T">\nT\n\nA dog. A cat.\n</doc>\n<doc>\nA cow.\n</doc>\n',
    "squad": '{"data": [{"paragraphs": [{"context": "A dog. A cat."}, {"context": "A cow."}]}]}',
    "race": '{"article": "A dog. A cat."}\n{"article": "A cow."}\n',
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_every_kind_of_file_is_read_plain_and_packed(tmp_path, kind, packed):
    content = FILES[kind].encode()
    path = tmp_path / ("file.txt.gz" if packed else "file.txt")
    path.write_bytes(gzip.compress(content) if packed else content)
    assert read(f"{kind}:{path}") == [("A dog.", "A cat."), ("A cow.",)]


@pytest.mark.parametrize("name", ["wiki40b/en", "wiki40b/en:9.9.9", "huggingface:glue", "kaggle:x"])
@pytest.mark.timeout(60)
def test_tfds_asks_no_network(tmp_path, monkeypatch, name):
    pytest.importorskip("tensorflow_datasets")

    def refuse(*_: object) -> None:
        raise AssertionError("the network was asked")

    for method in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, method, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(InputNotFoundError, match=f"no prepared dataset.*tfds build {name} "):
        read_documents(f"tfds:{name}", data_dir=str(tmp_path))
