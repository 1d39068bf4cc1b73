"""Label sets are read from every format, and what does not fit is named by file and row."""

import collections
import csv
import dataclasses
import gzip
import json
import pathlib

import pytest

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.examples import TextExample
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Reading, Source
from finetuning.datasets.multi_label import MultiLabel
from tests.finetuning.datasets.text_classification_test import write

TASK = MultiLabel()
DEV = "text,label\nx,joy\n"
TRAIN = 'text,label\na,joy\nb,"love, joy"\nc,\n'


def test_labels_in_cells(tmp_path, capsys):
    """Spaces around labels do not count, nor do repetitions; an empty cell holds none."""
    train = 'text,label\na,"love, joy"\nb,\nc," "\nd,"joy,joy "\n'
    data = TASK.read(write(tmp_path, train_csv=train, dev_csv=DEV))
    assert (data.task.labels, data.task.pair) == (("joy", "love"), False)
    assert data.task.thresholds == (0.5, 0.5)
    assert data.train == [
        TextExample("a", None, (0, 1)),
        TextExample("b", None, ()),
        TextExample("c", None, ()),
        TextExample("d", None, (0,)),
    ]
    assert data.dev == {"dev": [TextExample("x", None, (0,))]}
    assert capsys.readouterr().out == (
        "train: 4 examples, 0.75 labels each, 2 without one: joy 2 (50.0%), love 1 (25.0%)\n"
        "dev: 1 examples, 1.00 labels each, 0 without one: joy 1 (100.0%), love 0 (0.0%)\n"
        "note: no dev example has the label love. In macro_f1, its F1 counts as 0.\n"
    )


def test_lists_in_json_lines(tmp_path):
    rows = [("a", ["love", "joy"]), ("b", []), ("c", "joy, love"), ("d", 7), ("e", [7, "joy"])]
    lines = [json.dumps({"text_a": text, "text_b": "-", "label": label}) for text, label in rows]
    dev = '{"label": [], "text_b": "y", "text_a": "x"}\n'
    data = TASK.read(write(tmp_path, train_jsonl="\n".join(lines), dev_jsonl=dev))
    assert (data.task.labels, data.task.pair) == (("7", "joy", "love"), True)
    assert [each.label for each in data.train] == [(1, 2), (), (1, 2), (0,), (0, 1)]
    assert data.dev == {"dev": [TextExample("x", "y", ())]}


@pytest.mark.parametrize(("separator", "cell"), [("|", "joy | a, b"), (" ", " joy  love ")])
def test_separators(tmp_path, separator: str, cell: str):
    source = write(tmp_path, train_csv=f'text,label\na,"{cell}"\n', dev_csv=DEV)
    reading = Reading(label_separator=separator)
    task = TASK.read(dataclasses.replace(source, reading=reading)).task
    assert task.labels == (("a, b", "joy") if separator == "|" else ("joy", "love"))


def test_labels_named_0_and_1(tmp_path):
    """Rows with a single one show that the others are no vectors."""
    lines = '{"text": "x", "label": [0, 1]}\n{"text": "y", "label": [1]}\n'
    assert TASK.read(write(tmp_path, train_jsonl=lines, dev_jsonl=lines)).task.labels == ("0", "1")
    lines = "text,label\nx,0\ny,1\n"
    (tmp_path / "train.jsonl").unlink()
    (tmp_path / "dev.jsonl").unlink()
    with pytest.raises(InputError, match="only 0 and 1, one in a row.*text_classification"):
        TASK.read(write(tmp_path, train_csv=lines, dev_csv=lines))


@pytest.mark.parametrize("labels", [("1,0,1", "0,1,0", "0,1"), ([1, 0, 1], [0, 1])])
def test_vectors_of_different_lengths(tmp_path, labels: tuple[object, ...]):
    lines = "".join(json.dumps({"text": "x", "label": each}) + "\n" for each in labels)
    with pytest.raises(InputError, match="such a vector of 0 and 1 in every row"):
        TASK.read(write(tmp_path, train_jsonl=lines))


def test_columns_named_by_integers_are_sorted_by_value(tmp_path):
    rows = "text,10,9\nx,1,0\ny,0,1\n"
    source = write(tmp_path, train_csv=rows, dev_csv=rows)
    reading = Reading(label_columns=("10", "9"))
    data = TASK.read(dataclasses.replace(source, reading=reading))
    assert data.task.labels == ("9", "10") and [each.label for each in data.train] == [(1,), (0,)]


def test_a_column_without_a_one_is_a_label(tmp_path, capsys):
    rows = "text,a,b,c\nx,1,0,0\ny,0,1,0\n"
    source = write(tmp_path, train_csv=rows, dev_csv="text,a,b,c\nz,1,0,1\n")
    reading = Reading(label_columns=("c", "a", "b"))
    data = TASK.read(dataclasses.replace(source, reading=reading))
    assert data.task.labels == ("a", "b", "c") and data.dev["dev"][0].label == (0, 2)
    assert "note: no training example has the label c, which" in capsys.readouterr().out


@pytest.mark.parametrize("one", ["1", "1.0", "True", " true"])
@pytest.mark.parametrize("zero", ["0", "0.0", "False", " false"])
def test_a_column_of_a_label_in_all_forms(tmp_path, one: str, zero: str):
    """As tables write integers, the same beside missing ones, and truth values."""
    source = write(tmp_path, train_csv=f"text,a,b\nx,{one},{zero}\n", dev_csv="text,a,b\nz,0,1\n")
    data = TASK.read(dataclasses.replace(source, reading=Reading(label_columns=("a", "b"))))
    assert [each.label for each in data.train] == [(0,)]


@pytest.mark.parametrize(
    ("rows", "first"),
    [
        ((("001", "110")), 1),
        ((("", "001", "110")), 2),
        (([], [0, 0, 1], [1, 0, 0]), 2),
        (([0.0, 1.0], ["1", "1"]), 1),
    ],
)
def test_vectors_are_no_names(tmp_path, rows: tuple, first: int):
    lines = "".join(json.dumps({"text": "x", "label": label}) + "\n" for label in rows)
    with pytest.raises(InputError, match=f"jsonl:{first}: `label` must hold the names of labels"):
        TASK.read(write(tmp_path, train_jsonl=lines))


@pytest.mark.parametrize(
    "rows", [("01", "10"), ("001", "01"), ("100", "102"), ("100", "a"), (["100"], ["101"])]
)
def test_numbers_that_are_names(tmp_path, rows: tuple):
    lines = "".join(json.dumps({"text": "x", "label": label}) + "\n" for label in rows)
    assert len(TASK.read(write(tmp_path, train_jsonl=lines, dev_jsonl=lines)).task.labels) == 2


def test_many_labels_are_shortened(tmp_path, capsys):
    rows = "".join(f"x,label {i:04}\n" for i in range(1500))
    TASK.read(
        write(tmp_path, train_csv=f"text,label\n{rows}", dev_csv="text,label\ny,label 0000\n")
    )
    printed = capsys.readouterr().out
    assert "label 0049 1 (0.1%) and 1,450 more\n" in printed and len(printed) < 4000


def test_no_separator():
    with pytest.raises(InputError, match="--label_separator must not be empty"):
        Reading(label_separator="")


def test_other_columns_and_parts(tmp_path):
    source = write(
        tmp_path,
        train_csv=TRAIN.replace("text,label", "body,tags"),
        dev_csv=DEV.replace("text,label", "body,tags"),
        test_csv='body\n"so, so"\n\n""\n',
        more_jsonl='{"body": "", "tags": ["love"]}\n',
    )
    source = dataclasses.replace(source, reading=Reading(("body",), "tags"))
    data = TASK.read(source)
    assert [each.label for each in data.train] == [(0,), (0, 1), ()]
    assert TASK.read_part(source, "test", data.task) == [TextExample("so, so"), TextExample("")]
    assert TASK.read_part(source, "more", data.task) == [TextExample("", None, (1,))]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"train_csv": "text,class\nx,a\n"}, ("train.csv:1", "label", "missing")),
        ({"train_csv": TRAIN, "dev_csv": "text\nx\n"}, ("dev.csv:1", "label", "missing")),
        ({"train_csv": 'text,label\nx,""\n'}, ("train.csv", "`label`", "at least one row")),
        ({"train_csv": 'text,label\nx,a\ny,"a,,b"\n'}, ("train.csv:3", "empty label")),
        (
            {"train_csv": "text,label\nx,\"['joy', 'love']\"\n"},
            ("train.csv:2", "['joy', 'love']", "Write joy,love", "JSON lines"),
        ),
        ({"dev_csv": "text,label\nx,[]\n", "train_csv": TRAIN}, ("dev.csv:2", "cell empty")),
        ({"train_csv": "text,label\n,a\n"}, ("train.csv:2", "`text` is empty")),
        ({"train_csv": "text,label\n"}, ("train.csv", "no rows")),
        (
            {"train_csv": TRAIN, "dev_csv": 'text,label\nx,joy\ny,"joy, hate"\n'},
            ("dev.csv:3", "'hate'", "has joy, love. Correct"),
        ),
        (
            {
                "train_csv": f'text,label\nx,"{",".join("abcdefghijkl")}"\n',
                "dev_csv": "text,label\ny,a;b\n",
            },
            ("'a;b'", "has a, b, c, d, e, f, g, h, i, j and 2 more. Correct", "--label_separator"),
        ),
        ({"train_jsonl": '{"text": "x", "label": null}\n'}, ("train.jsonl:1", "`label`", "None")),
        (
            {"train_jsonl": '{"text": "x", "label": [0, 1]}\n{"text": "y", "label": [0, 0]}\n'},
            ("train.jsonl:1: `label` must hold the names", "[0, 1], and such a vector of 0 and 1"),
        ),
        ({"train_jsonl": '{"text": "x", "label": [true, false]}\n'}, ("[True, False], and such",)),
        ({"train_csv": 'text,label\nx,"0,1"\ny,"1,1"\n'}, ("train.csv:2: `label`", "'0,1'")),
        ({"train_csv": "text,label\nx,0 1\ny,1|1\n"}, ("train.csv:2: `label`", "'0 1'")),
        ({"train_jsonl": '{"text": "x", "label": NaN}\n'}, ("train.jsonl:1", "NaN is not a JSON")),
        ({"train_jsonl": '{"text": "x", "label": [["a"]]}\n'}, ("train.jsonl:1", "[['a']]")),
        ({"train_jsonl": '{"text": "x", "label": {"a": 1}}\n'}, ("train.jsonl:1", "`label`")),
        ({"train_jsonl": '{"text": "x", "label": ["a", " "]}\n'}, ("train.jsonl:1", "empty label")),
        (
            {"train_jsonl": '{"text": "x", "label": ["a"]}\n{"text": "y"}\n'},
            ("train.jsonl:2", "`label`", "None"),
        ),
    ],
)
def test_rows_that_do_not_fit_are_named(tmp_path, files: dict, words: tuple[str, ...]):
    with pytest.raises(InputError) as error:
        TASK.read(write(tmp_path, **{"dev_csv": DEV} | files))
    assert all(word in str(error.value) for word in words), error.value


def test_an_unknown_label_of_a_part(tmp_path):
    source = write(tmp_path, train_csv=TRAIN, dev_csv=DEV, test_csv="text,label\nx,hate\n")
    task = TASK.read(source).task
    with pytest.raises(InputError, match=r"test.csv:2: label 'hate' .* has joy, love"):
        TASK.read_part(source, "test", task)


def test_held_out_examples_are_the_dev_part(tmp_path):
    rows = "".join(f"{i},{'joy' if i % 2 else ''}\n" for i in range(100))
    source = write(tmp_path, train_csv="text,label\n" + rows)
    data = TASK.read(dataclasses.replace(source, reading=Reading(dev_fraction=0.2)))
    assert 10 < len(data.dev["dev"]) < 30 and len(data.train) + len(data.dev["dev"]) == 100


def test_the_submission(tmp_path: pathlib.Path):
    out = tmp_path / "out.tsv"
    predictions = [
        {"labels": labels, "probabilities": {"joy": 0.5, "love; or so": 0.5}}
        for labels in (["love; or so", "joy"], [])
    ]
    TASK.write_submission(str(out), predictions, [])
    assert out.read_text() == "index\tprediction\n0\tlove; or so,joy\n1\t\n"
    other = DATASETS["multi_label"].with_reading(Reading(label_separator=";"))
    out.unlink()
    with pytest.raises(InputError, match=r"separator ';'\. Received: 'love; or so'"):
        other.write_submission(str(out), predictions, [])
    assert not out.exists()
    assert DATASETS["cola"].with_reading(Reading()) is DATASETS["cola"]


def test_goemotions(shared_data: pathlib.Path, tmp_path: pathlib.Path, capsys):
    """Published counts of its dev and test parts, which serve as train and dev here.

    Its files have no header, and numbers of labels: a table of one's own has names.
    """
    folder = shared_data / "multilabel" / "goemotions"
    names = (folder / "labels.txt").read_text().splitlines()
    for theirs, ours in (("dev", "train"), ("test", "dev")):
        with gzip.open(folder / f"{theirs}.tsv.gz", "rt", encoding="utf-8") as lines:
            rows = [line.rstrip("\n").split("\t")[:2] for line in lines]
        with open(tmp_path / f"{ours}.tsv", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t")
            writer.writerow(["text", "label"])
            for text, numbers in rows:
                writer.writerow([text, ", ".join(names[int(i)] for i in numbers.split(","))])
    data = TASK.read(Source(str(tmp_path)))
    assert data.task.labels == tuple(sorted(names)) and len(names) == 28
    assert [len(part) for part in (data.train, data.dev["dev"])] == [5426, 5427]
    sizes = collections.Counter(len(example.label) for example in data.train)
    assert sizes == {1: 4548, 2: 809, 3: 62, 4: 7}
    printed = capsys.readouterr().out
    assert "5,426 examples" in printed and "admiration 488" in printed and "grief 13" in printed
