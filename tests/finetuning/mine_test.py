"""`finetuning.mine`: hard negatives by BM25 and by a model, in a file that is trained on."""

import gzip
import json
import math
import pathlib

import numpy as np
import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.tasks.embedding.examples import ContrastExample
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Source
from finetuning.mine import MineOptions, main

PAIRS = (
    "query\tpassage\nan apple pie\tapple tree\nAn APPLE pie.\tapple apple\n"
    "green sea\tgreen pie\nx\tapple pie\ny\tGreen, sea!\n"
)


def options_of(folder: pathlib.Path, content: str = PAIRS, **given) -> MineOptions:
    (folder / "train.tsv").write_text(content)
    (folder / "mined").mkdir(exist_ok=True)
    out = given.pop("output", str(folder / "mined" / "train.jsonl"))
    return MineOptions(str(folder), out, **given)


def rows_of(options: MineOptions) -> list[list[str]]:
    """The values of each row."""
    lines = pathlib.Path(options.output).read_text().splitlines()
    assert all([*json.loads(line)] == ["text_a", "text_b", "negatives"] for line in lines)
    return [[*json.loads(line).values()] for line in lines]


class Embedder:
    """The vector of a text has the cosine in its last word, in percent, to that of a query."""

    def __init__(self, path: str) -> None:
        assert path == "model"

    def encode_query(self, texts: list[str], batch_size: int) -> np.ndarray:
        return np.array([[1.0, 0.0]] * len(texts), np.float32)

    def encode_document(self, texts: list[str], batch_size: int) -> np.ndarray:
        cosines = [int(text.split()[-1]) / 100 for text in texts]
        return np.array([[each, math.sqrt(1 - each**2)] for each in cosines], np.float32)


def test_by_words(tmp_path, capsys):
    """BM25 by hand: all candidates have 2 words, so a word's weight is its rarity.

    Of 5 texts 3 have "apple", 0.54, and 2 "pie", 0.88. The query has "apple pie" before "green
    pie"; "apple tree" and "apple apple" are its own. The other one has only a text that equals it.
    """
    options = options_of(tmp_path)
    main(options)
    first, second = [
        ["an apple pie", "apple tree", ["apple pie", "green pie"]],
        ["An APPLE pie.", "apple apple", ["apple pie", "green pie"]],
    ]
    others = [["green sea", "green pie", []], ["x", "apple pie", []], ["y", "Green, sea!", []]]
    assert rows_of(options) == [first, second, *others]
    said = "train.jsonl: 5 pairs, 5 candidates; 0 pairs have 5 mined negatives"
    assert said in capsys.readouterr().out
    content = pathlib.Path(options.output).read_bytes()
    main(options)
    assert pathlib.Path(options.output).read_bytes() == content
    main(MineOptions(options.data_dir, options.output, negatives=1))
    assert rows_of(options)[0] == [*first[:2], ["apple pie"]]
    assert "2 pairs have 1 mined negatives" in capsys.readouterr().out


def test_a_compressed_file_is_trained_on(tmp_path):
    plain, packed = options_of(tmp_path), tmp_path / "mined" / "train.jsonl.gz"
    main(plain)
    main(options_of(tmp_path, output=str(packed)))
    assert gzip.decompress(packed.read_bytes()) == pathlib.Path(plain.output).read_bytes()
    pathlib.Path(plain.output).unlink()
    assert len(DATASETS["embedding"].examples(Source(str(packed.parent)), "train")) == 5


NUMBERED = "query\tpassage\tnegative\na b\tb 80\told 10\nc\td 60\t\n"
MORE = "e 77\nb a 70\nf 50\n\n"


@pytest.mark.parametrize(
    ("given", "first", "second", "near"),
    [
        ({"by": "model"}, ["b a 70", "d 60"], ["f 50", "old 10"], "2.0 candidates.*(4)"),
        ({"by": "model", "margin": 0.0}, ["e 77", "b a 70"], ["f 50", "old 10"], "1.5.*(3)"),
        ({"by": "bm25"}, ["b a 70"], [], "2.0 .*(4)"),
        ({"by": "bm25,model"}, ["b a 70", "d 60"], ["f 50", "old 10"], "2.0 .*(4)"),
    ],
)
def test_by_the_model(tmp_path, capsys, given, first, second, near):
    """A second text of 80 allows 76, one of 60 allows 57: of b 80, old 10, d 60 and those in MORE.

    For the first text e is too near; for the second one b, e and "b a".
    """
    (tmp_path / "more.txt").write_text(MORE)
    given = {"model": "model", "candidates": str(tmp_path / "more.txt"), "negatives": 2} | given
    options = options_of(tmp_path, NUMBERED, **given)
    main(options, Embedder)
    wanted = [["a b", "b 80", ["old 10", *first]], ["c", "d 60", second]]
    assert rows_of(options) == wanted
    said = capsys.readouterr().out
    assert all(part in said for part in near.split(".*"))
    assert "2 pairs, 6 candidates" in said


def test_all_documents_of_a_search_are_candidates(tmp_path):
    documents = [{"_id": str(i), "text": text} for i, text in enumerate(["a b", "a c", "a d", "e"])]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
    (tmp_path / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "which a"}))
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq\t0\t1\nq\t1\t0\n")
    (tmp_path / "more.csv").write_text("id,text\n1,a f\n")
    options = options_of(tmp_path, candidates=str(tmp_path / "more.csv"))
    main(options)
    assert rows_of(options) == [["which a", "a b", ["a c", "a d", "a f"]]]


def test_a_model_of_ours_and_the_reader_of_training(tmp_path, start, capsys):
    rows = [f"the {a} of {b}\t{b} or {a} of {a}" for a in "abcd" for b in "xyz"]
    content = "\n".join(["first\tsecond", *rows, ""])
    given = {"by": "bm25,model", "model": start, "margin": 0.0, "negatives": 3}
    options = options_of(tmp_path, content, **given, text_column=("first", "second"))
    main(MineOptions(**vars(options) | {"dry_run": True}))
    assert not pathlib.Path(options.output).exists()
    assert "12 pairs, 12 candidates" in capsys.readouterr().out
    main(options)
    (tmp_path / "mined" / "dev.tsv").write_text("query\tpassage\na\tb\n")
    data = DATASETS["embedding"].read(Source(str(tmp_path / "mined")))
    assert data.task.loss == "in_batch"
    assert [each.texts[:2] for each in data.train] == [tuple(row.split("\t")) for row in rows]
    assert all(isinstance(each, ContrastExample) for each in data.train)
    negatives = [set(each.negatives) for each in data.train]
    assert 3 == max(map(len, negatives)) and not any(
        each.second in found for each, found in zip(data.train, negatives, strict=True)
    )


SCORED = "text_a\ttext_b\tscore\na\tb\t1\nc\td\t2\n"


@pytest.mark.parametrize(
    ("content", "given", "message"),
    [
        ("text\na\nb\n", {}, "must hold pairs without scores. Received: single texts"),
        (SCORED, {}, "must hold pairs without scores. Received: scored pairs"),
        ("query\tpassage\na\t \n", {}, "train.tsv:2: `passage` is empty"),
        ("query\tpassage\na\tb\n", {}, "no pair for which one of 1 candidates is a negative"),
        (PAIRS, {"candidates": "none.txt"}, "--candidates.*none.txt"),
        (PAIRS, {"candidates": "none.jsonl"}, "none.jsonl"),
        (PAIRS, {"output": "corpus.jsonl"}, "--output must not be a part of --data_dir"),
        (PAIRS, {"output": "c.txt", "candidates": "./c.txt"}, "not be a file of --candidates"),
        (PAIRS, {"output": "train.tsv/train.jsonl"}, "--output must be a local file in a folder"),
    ],
)
def test_invalid_options_leave_nothing(tmp_path, monkeypatch, content, given, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.txt").write_text("a text")
    options = options_of(tmp_path, content, **given)
    with pytest.raises(InputError, match=message):
        main(options)
    assert not any((tmp_path / "mined").iterdir())


@pytest.mark.parametrize("name", ["train.tsv", "train.jsonl", "dev.csv"])
def test_the_pairs_are_not_overwritten(tmp_path, name):
    with pytest.raises(InputError, match="--output must not be a part of --data_dir"):
        main(options_of(tmp_path, output=str(tmp_path / name)))
    assert (tmp_path / "train.tsv").read_text() == PAIRS


def test_options_that_do_not_fit():
    with pytest.raises(InputError, match="--by=bm25,model needs a model. Pass --model"):
        MineOptions("a", "b", "bm25,model")
    with pytest.raises(InputError, match="--by must be one of bm25, model, bm25,model"):
        MineOptions("a", "b", "words")
    with pytest.raises(InputError, match=r"--margin must be in \[0, 1\). Received: 1.0"):
        MineOptions("a", "b", margin=1.0)


def test_vectors_that_are_no_numbers(tmp_path):
    class Broken(Embedder):
        def encode_query(self, texts: list[str], batch_size: int) -> np.ndarray:
            return np.array([[1.0, np.nan if text == "x" else 0] for text in texts])

        def encode_document(self, texts: list[str], batch_size: int) -> np.ndarray:
            return np.ones([len(texts), 2])

    options = options_of(tmp_path, by="model", model="model")
    with pytest.raises(InputError, match="must give vectors of finite numbers. .*text 'x'"):
        main(options, Broken)


def test_a_folder_without_pairs(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(InputNotFoundError, match="--data_dir: no file train.tsv"):
        main(MineOptions(str(tmp_path), str(tmp_path / "out" / "train.jsonl")))
