"""Files in the shape of those that people have trouble with: read rightly, or named."""

import pathlib

import numpy as np
import pytest

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.spans.answers import decode_spans
from albert_tf.tasks.spans.features import featurize_spans
from albert_tf.text.tokenizer import load_tokenizer
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Data, Reading, Source


def read(shared_data: pathlib.Path, folder: str, task: str, **reading) -> Data:
    path = str(shared_data / "odd_files" / folder)
    return DATASETS[task].read(Source(path, reading=Reading(**reading)))


@pytest.mark.parametrize(
    ("folder", "task", "message"),
    [
        ("T05", "text_classification", "train.jsonl:1 must be JSON: NaN is not a JSON value"),
        ("T06", "text_classification", "train.jsonl:1 must be JSON: NaN is not a JSON value"),
        ("T29", "text_classification", r"train.csv must be text. Received: an Excel workbook"),
        ("M04", "multi_label", r"train.jsonl:1: `label` must hold the names .* \[0, 0, 1\], and"),
        ("M07", "multi_label", r"train.csv:2: `label` must hold the names .* '0,0,1', and such"),
        ("M07", "text_classification", r"train.csv:2: `label` must hold the names .* '0,0,1'"),
        ("N06", "token_classification", r"train.jsonl:1: .* not bytes or UTF-16 units"),
        ("N09b", "token_classification", r"train.conll: .* hold words. .* such as --text_column=1"),
    ],
)
def test_unreadable_files_are_refused(shared_data, folder: str, task: str, message: str):
    with pytest.raises(InputError, match=message):
        read(shared_data, folder, task)


@pytest.mark.parametrize(
    ("folder", "task", "printed"),
    [
        ("M02", "multi_label", "pass --label_separator='#'."),
        ("N04", "token_classification", "train.jsonl: {} lines of Prodigy whose `answer` is"),
        ("T10", "text_classification", "train.jsonl: {} lines of Prodigy whose `answer` is"),
    ],
)
def test_odd_but_readable_files_are_noted(
    shared_data, capsys, folder: str, task: str, printed: str
):
    data = read(shared_data, folder, task)
    (path,) = (shared_data / "odd_files" / folder).glob("train.*")
    lines = path.read_text(encoding="utf-8")
    rejected = lines.count('"answer": "reject"') + lines.count('"answer": "ignore"')
    captured = capsys.readouterr()
    assert printed.format(rejected) in captured.out + captured.err
    assert "WRONG" not in data.task.labels
    if rejected:
        assert 0 < len(data.train) == lines.count("\n") - rejected


@pytest.mark.parametrize(("folder", "reading"), [("N09b", {"text_column": ("1",)}), ("N21", {})])
def test_columns_that_are_read(shared_data, folder: str, reading: dict):
    data = read(shared_data, folder, "token_classification", **reading)
    assert data.task.labels == ("LOC", "PER")
    assert {example.text for example in data.train} == {"Ann left Turku"}


def test_line_ends_of_cr_alone(shared_data):
    data = read(shared_data, "T14", "text_classification")
    assert (len(data.train), data.train[0].first) == (16, "the soup was warm and tasty")
    assert data.task.labels == ("neg", "pos")


def test_a_zero_width_character_before_an_answer(shared_data):
    data = read(shared_data, "Q08", "squad1")
    for name in ("albert_en_30k/spiece.model", "albert_zh/vocab_chinese.txt"):
        tokenizer = load_tokenizer(shared_data / "vocab" / name)
        features = featurize_spans(data.train, tokenizer, data.task)
        start, end = (features.targets[f"{side}_position"] for side in ("start", "end"))
        spans = {"start": start[:, None], "end": end[:, None], "score": np.zeros([len(start), 1])}
        predictions = decode_spans(spans, features, data.train, data.task)
        assert [each["answer"] for each in predictions] == [
            *("Bo Berg", "1987", "Ann", "Nokia Oy", "Turku\xa0Market", "1987.\nHis sister")
        ]


SPANS = {"Ann Berg met Bo in Turku.": ((0, 8, "PER"), (13, 15, "PER"), (19, 24, "LOC"))}


@pytest.mark.parametrize("folder", ["N01", "N03c"])
def test_spans_of_doccano_and_label_studio(shared_data, folder: str):
    data = read(shared_data, folder, "token_classification")
    assert {e.text: e.entities for e in data.train if e.text in SPANS} == SPANS
    assert data.task.labels == ("LOC", "ORG", "PER")


def test_tokens_and_tags_in_a_line(shared_data):
    data = read(shared_data, "N08a", "token_classification")
    example = data.train[0]
    assert (example.text, example.entities) == (
        "Ann left Turku",
        ((0, 3, "PER"), (9, 14, "LOC")),
    )
    assert example.tokens == ((0, 3), (4, 8), (9, 14)) and data.task.labels == ("LOC", "PER")


def test_offsets_in_utf16(shared_data):
    data = read(shared_data, "N06", "token_classification", offsets="utf16")
    example = data.train[0]
    assert [example.text[a:b] for a, b, _ in example.entities] == ["Ann", "Bo"]


def test_a_column_for_each_label(shared_data):
    labels = ("toxic", "threat", "insult")
    data = read(
        shared_data, "M01", "multi_label", text_column=("comment_text",), label_columns=labels
    )
    path = shared_data / "odd_files" / "M01" / "train.csv"
    cells = [line.rsplit(",", 3)[1:] for line in path.read_text().splitlines()[1:]]
    names = [{labels[i] for i, cell in enumerate(row) if cell == "1"} for row in cells]
    assert [{data.task.labels[i] for i in e.label} for e in data.train] == names
    with pytest.raises(InputError, match="column of 0 and 1, repeat --label_column for each"):
        read(shared_data, "M01", "multi_label")


@pytest.mark.parametrize(
    ("folder", "text"),
    [("T01", "the soup was warm and tasty; ganz schön"), ("T03", "the soup was warm and tasty")],
)
def test_tables_of_excel(shared_data, folder: str, text: str):
    data = read(shared_data, folder, "text_classification")
    assert (len(data.train), data.train[0].first, data.task.labels) == (16, text, ("neg", "pos"))


def test_a_list_of_one_label(shared_data):
    data = read(shared_data, "T09", "text_classification")
    assert data.task.labels == ("neg", "pos") and len(data.train) == 16


@pytest.mark.parametrize(("folder", "first"), [("Q01", "0"), ("Q03", "q1")])
def test_questions_of_other_tools(shared_data, folder: str, first: str):
    data = read(shared_data, folder, "squad1")
    example = data.train[0]
    assert (example.id, example.question) == (first, "Who opened a bakery?")
    assert example.answers == ((0, "Bo Berg"),)


@pytest.mark.parametrize("folder", ["Q06a", "Q06b"])
def test_questions_without_answers_and_without_a_mark(shared_data, capsys, folder: str):
    data = read(shared_data, folder, "squad2")
    unanswered = [example for example in data.train if not example.answers]
    assert unanswered and all(example.is_impossible for example in unanswered)
    note = f"{len(unanswered)} questions have no answers and no `is_impossible`, so they are taken"
    assert note in capsys.readouterr().err
