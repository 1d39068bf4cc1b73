"""Classification of a user's own texts: `train` and `dev` as .tsv, .csv or .jsonl."""

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.tasks.classifier import ClassifierTask
from albert_tf.tasks.examples import TextExample
from finetuning.datasets import metrics
from finetuning.datasets.table_files import FORMATS, Table, find, open_table, write_predictions
from finetuning.datasets.task import Data, Prediction, Source, require_section

SINGLE, PAIR = ("text",), ("text_a", "text_b")
# `file:line`, text and second text, and the label if the part has labels.
Rows = Iterator[tuple[str, tuple[str, str | None], str | None]]


class TextClassification:
    """Texts (column `text`) or pairs (`text_a`, `text_b`) with any set of labels (`label`).

    The labels are those of the training part, sorted by name. A part to predict, such as `test`,
    may have no column `label`.
    """

    metrics: tuple[str, ...] = ("accuracy", "macro_f1")
    recipe: Mapping[str, Any] = {}

    def read(self, source: Source) -> Data:
        """Read the training and dev examples, and print the frequency of each label."""
        table = open_part(source, "train")
        pair = text_columns(table) == PAIR
        rows = [(texts, str(label)) for _, texts, label in rows_of(table, pair, has_labels=True)]
        counts = collections.Counter(label for _, label in rows)
        if len(counts) < 2:
            raise InputError(
                f"{table.path} must hold at least two labels. Received: {', '.join(counts)}."
            )
        task = ClassifierTask(pair=pair, labels=tuple(sorted(counts)))
        train = [TextExample(*texts, task.labels.index(label)) for texts, label in rows]
        dev = _read(open_part(source, "dev"), task, has_labels=True)
        for part, examples in {"train": train, "dev": dev}.items():
            print(f"{part}: {_balance(examples, task.labels)}")
        return Data(task, train, {"dev": dev})

    def read_part(self, source: Source, part: str, task: ClassifierTask) -> list[TextExample]:
        """Read the examples of the file named `part`."""
        require_section("text_classification", task, kind="classifier")
        table = open_part(source, part)
        return _read(table, task, has_labels="label" in table.columns)

    def score(
        self, predictions: Sequence[Prediction], examples: Sequence[TextExample]
    ) -> dict[str, float]:
        """Return accuracy and macro F1."""
        return metrics.score_labels(self.metrics, predictions, examples)

    def write_submission(
        self, path: str, predictions: Sequence[Prediction], examples: Sequence[TextExample]
    ) -> None:
        """Write `index`, counted from 0, and `prediction`, the label's name."""
        write_predictions(path, [each["label"] for each in predictions])


def open_part(source: Source, part: str) -> Table:
    """Return the table of a part.

    Raises:
      InputNotFoundError: there is no such file; for `dev`, the message explains how to make one.
      InputError: there are several such files, or the source is TFDS.
    """
    if source.tfds:
        raise InputError(
            "--tfds must not be set for your own table, which is read from files. Pass --data_dir "
            "alone."
        )
    try:
        return open_table(find(source.data_dir or "", [part + end for end in FORMATS]))
    except InputNotFoundError as error:
        if part != "dev":
            raise
        raise InputNotFoundError(
            f"{error} Move about a tenth of the training rows, chosen at random, to this file, "
            "under the same header: held-out examples show how good the run is."
        ) from None


def text_columns(table: Table) -> tuple[str, ...]:
    """Return `text_a` and `text_b` if the table has one of them, else `text`.

    Raises:
      InputError: the table has `text` and one of the others.
    """
    pair = [name for name in PAIR if name in table.columns]
    if pair and "text" in table.columns:
        raise InputError(
            f"{table.path}:1: the header must name either text, or text_a and text_b, in lower "
            f"case. Received: {list(table.columns)}."
        )
    return PAIR if pair else SINGLE


def rows_of(table: Table, pair: bool, has_labels: bool) -> Rows:
    """Yield the rows of a part, with their labels if it `has_labels`."""
    names = PAIR if pair else SINGLE
    for location, cells in table.select((*names, "label") if has_labels else names):
        yield (
            location,
            (cells[0], cells[1] if pair else None),
            cells[-1].strip() if has_labels else None,
        )


def _read(table: Table, task: ClassifierTask, has_labels: bool) -> list[TextExample]:
    number = {label: i for i, label in enumerate(task.labels)}
    examples = []
    for location, texts, label in rows_of(table, task.pair, has_labels):
        if label is not None and label not in number:
            raise InputError(
                f"{location}: label {label!r} does not occur in the training part, which has "
                f"{', '.join(number)}. Correct or remove the row."
            )
        examples.append(TextExample(*texts, None if label is None else number[label]))
    return examples


def _balance(examples: Sequence[TextExample], labels: Sequence[str]) -> str:
    counts = collections.Counter(example.label for example in examples)
    shares = (
        f"{label} {counts[i]:,} ({counts[i] / len(examples):.1%})" for i, label in enumerate(labels)
    )
    return f"{len(examples):,} examples: {', '.join(shares)}"
