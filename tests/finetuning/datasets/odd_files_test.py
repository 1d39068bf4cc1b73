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
def test_what_is_refused(shared_data, folder: str, task: str, message: str):
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
def test_what_is_noted(shared_data, capsys, folder: str, task: str, printed: str):
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
