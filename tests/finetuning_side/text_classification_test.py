"""A user's table is read exactly, and what does not fit is named by file and row."""

import pathlib

import pytest

from albert_tf.errors import InputError, InputNotFoundError
from finetuning.tasks.text_classification import TextClassification


def write(folder: pathlib.Path, train: str, dev: str = "text\tlabel\nx\ta\n") -> str:
    (folder / "train.tsv").write_text(train, encoding="utf-8")
    (folder / "dev.tsv").write_text(dev, encoding="utf-8")
    return str(folder)


def test_labels_come_from_the_training_part_sorted(tmp_path: pathlib.Path):
    rows = "label\tid\ttext\nb\t1\tHe said \"so\na\t2\tcafé, d'accord\nb\t3\t\n"
    task, train, dev = TextClassification().read(write(tmp_path, rows))
    assert task.labels == ("a", "b")
    assert train.first == ('He said "so', "café, d'accord", "")  # quotes are text, not quoting
    assert train.labels == (1, 0, 1)
    assert (dev.first, dev.labels, dev.second) == (("x",), (0,), None)


@pytest.mark.parametrize(
    ("train", "dev", "words"),
    [
        ("text\tclass\nx\ta\n", None, ("train.tsv:1", "label")),
        ("text\tlabel\nx\ta\textra\n", None, ("train.tsv:2", "3 columns", "2")),
        ("text\tlabel\nx\ta\n", None, ("train.tsv", "two labels")),
        ("text\tlabel\n", None, ("train.tsv", "no rows")),
        ("text\tlabel\nx\ta\ny\tb\n", "text\tlabel\nz\tc\n", ("dev.tsv:2", "'c'", "a, b")),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: pathlib.Path, train: str, dev: str | None, words: tuple[str, ...]
):
    with pytest.raises(InputError) as error:
        TextClassification().read(write(tmp_path, train, dev or "text\tlabel\nx\ta\n"))
    assert all(word in str(error.value) for word in words)


def test_a_missing_file_is_named(tmp_path: pathlib.Path):
    with pytest.raises(InputNotFoundError, match=r"train.tsv"):
        TextClassification().read(str(tmp_path))
