"""Multi-label classification of a user's own texts: `train` and `dev` as tables."""

import collections
import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

from albert_tf.runtime.errors import InputError, listed
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.multi_label.model import MultiLabelSettings
from finetuning.datasets.dataset import (
    LABELS_SHOWN,
    Data,
    Dataset,
    Prediction,
    Reading,
    Source,
    require_section,
)
from finetuning.datasets.scores.multi_label_metrics import score_label_sets
from finetuning.datasets.selection import limited, with_dev
from finetuning.datasets.tables.json_files import as_text, choices_in
from finetuning.datasets.tables.label_separator import note_separator
from finetuning.datasets.tables.own_tables import (
    PAIR,
    label_name,
    named,
    note_absent,
    note_similar,
    open_part,
    ordered_labels,
    text_columns,
    with_ids,
)
from finetuning.datasets.tables.table_files import Table, write_predictions

_REMEDY = (
    "Rename the columns (or add a header, if the file has none), or train with --text_column and "
    "--label_column; if each label has a column of 0 and 1, repeat --label_column for each."
)
_FLAGS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
# `file:line`, text and second text, and the labels if the part has labels.
Rows = Iterator[tuple[str, tuple[str, str | None], tuple[str, ...] | None]]


@dataclasses.dataclass(frozen=True)
class MultiLabel(Dataset[MultiLabelSettings]):
    """Texts (column `text`) or pairs (`text_a`, `text_b`) with any number of labels (`label`).

    The labels of a row are a list in JSON lines, and in any format a text that
    `Source.reading.label_separator` divides; spaces around a label do not count. An empty list or
    cell means that there is no label. A label that a row repeats counts once.

    `Source.reading` may name other columns, or a column of 0 and 1 for each label. The labels are
    those of the training part, or those that have a column, in the order of `ordered_labels`. A
    part to predict, such as `test`, may have no column for the labels.

    Attributes:
      separator: the text between the labels of a row in the file of `write_submission`.
    """

    separator: str = Reading().label_separator

    kind = "multi_label"
    metrics = ("macro_f1", "micro_f1", "average_precision")
    options = ("text_column", "label_column", "label_columns", "label_separator")
    columns = {"": ("macro_f1",), ", average precision": ("average_precision",)}

    def with_reading(self, reading: Reading) -> "MultiLabel":
        """Return the dataset that writes labels with the separator that it reads."""
        return dataclasses.replace(self, separator=reading.label_separator)

    def read(self, source: Source) -> Data:
        """Read the training and dev examples, and print the frequency of each label."""
        table = dataclasses.replace(open_part(source, "train"), remedy=_REMEDY)
        columns = text_columns(source, table)
        rows = list(_rows(source, table, columns, allow_empty=False))
        sets = [labels or () for _, _, labels in rows]
        names = ordered_labels(name for labels in sets for name in labels)
        if not names:
            raise InputError(
                f"{table.path}: the column `{source.reading.label_column}` must hold a label in at "
                "least one row. Received: none. Fill it in, or pass --label_column."
            )
        if source.reading.label_columns:
            names = _declared(source.reading.label_columns, names)
        else:
            note_separator([(location, labels or ()) for location, _, labels in rows])
            if set(names) <= {"0", "1"} and all(len(labels) < 2 for labels in sets):
                raise InputError(
                    f"{table.path}: the column `{source.reading.label_column}` must hold the names "
                    "of labels. Received: only 0 and 1, one in a row. If it says whether a text "
                    "has a label, pass --task=text_classification; if more columns do so, repeat "
                    "--label_column for each."
                )
        task = MultiLabelSettings(pair=len(columns) > 1, labels=names)

        def read_dev() -> list[TextExample]:
            return _examples(_rows(source, open_part(source, "dev"), columns, False), task)

        train, dev = with_dev(source, _examples(iter(rows), task), {"dev": read_dev})
        train = limited(source, train)
        for part, examples in {"train": train, **dev}.items():
            print(f"{part}: {_balance(examples, task.labels)}")
        note_similar(task.labels)
        indices = {i for examples in dev.values() for example in examples for i in example.label}
        note_absent([name for i, name in enumerate(task.labels) if i not in indices], source)
        return Data(task, train, dev)

    def read_part(
        self, source: Source, part: str, task: MultiLabelSettings
    ) -> Sequence[TextExample]:
        """Read the examples of the file named `part`."""
        require_section("multi_label", task, kind=self.kind)
        columns = source.reading.text_column or (PAIR if task.pair else ("text",))
        table = open_part(source, part, to_predict=True)
        return with_ids(_examples(_rows(source, table, columns, allow_empty=True), task), table)

    score = staticmethod(score_label_sets)

    def write_submission(
        self, path: str, predictions: Sequence[Prediction], examples: Sequence[TextExample]
    ) -> None:
        """Write `index`, counted from 0, and `prediction`, the labels with the separator between.

        Raises:
          InputError: the name of a label contains the separator.
        """
        if wrong := [name for name in predictions[0]["probabilities"] if self.separator in name]:
            raise InputError(
                f"--submission: a label must not contain the separator {self.separator!r}. "
                f"Received: {wrong[0]!r}. Train with another --label_separator, or pass --output, "
                "which writes lists."
            )
        write_predictions(
            path, [self.separator.join(prediction["labels"]) for prediction in predictions]
        )


def _declared(columns: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the labels that have a column; print a note on those that no training row has."""
    if absent := ordered_labels(set(columns) - set(names)):
        print(
            f"note: no training example has the label {listed(absent)}, which the model therefore "
            "never predicts."
        )
    return ordered_labels(columns)


def _rows(source: Source, table: Table, columns: Sequence[str], allow_empty: bool) -> Rows:
    """Yield the rows of a part; `allow_empty` also accepts one without labels, and empty texts."""
    if source.reading.label_columns:
        yield from _rows_of_columns(source.reading.label_columns, table, columns, allow_empty)
        return
    name: str | None = source.reading.label_column
    if allow_empty and name not in table.columns:
        name = None
    names = (*columns, name) if name else columns
    unchecked = (name,) if name else ()
    rows = table.select(names, allow_empty=allow_empty, unchecked=unchecked)
    for location, cells in named(rows, name, several=True) if name else rows:
        texts = (cells[0], cells[1] if len(columns) > 1 else None)
        yield location, texts, _labels(cells[-1], source, location) if name else None


def _rows_of_columns(
    labels: Sequence[str], table: Table, columns: Sequence[str], allow_empty: bool
) -> Rows:
    """Yield the rows of a part in which each label has a column, as `_rows` does."""
    is_labeled = not allow_empty or not set(labels).isdisjoint(table.columns)
    names = (*columns, *labels) if is_labeled else tuple(columns)
    for location, cells in table.select(names, allow_empty=allow_empty, unchecked=labels):
        texts = (cells[0], cells[1] if len(columns) > 1 else None)
        flags = zip(labels, cells[len(columns) :], strict=True) if is_labeled else ()
        row_labels = tuple(name for name, cell in flags if _is_one(cell, name, location))
        yield location, texts, row_labels if is_labeled else None


def _is_one(cell: Any, name: str, location: str) -> bool:
    """Return the value of a cell in the column of a label."""
    value = str(as_text(cell)).strip().lower()
    if value not in _FLAGS:
        raise InputError(
            f"{location}: `{name}` must be 0 or 1, because --label_column names several columns. "
            f"Received: {cell!r}. Correct or remove the row."
        )
    return _FLAGS[value]


def _labels(cell: Any, source: Source, location: str) -> tuple[str, ...]:
    """Return the labels in a cell, without repetitions."""
    key, separator = source.reading.label_column, source.reading.label_separator
    cell = choices_in(as_text(cell), f"{location}: `{key}`")
    if isinstance(cell, str):
        stripped = cell.strip()
        if stripped.startswith("[") and stripped.endswith("]"):  # as pandas writes a list
            raise InputError(
                f"{location}: `{key}` must hold labels with {separator!r} between them, without "
                f"brackets. Received: {cell!r}. Write joy{separator}love, and leave the cell empty "
                "if there is no label, or write the lists in JSON lines."
            )
        cell = cell.split(separator if separator.strip() else None) if stripped else []
    if not isinstance(cell, list) or not all(isinstance(name, str | int) for name in cell):
        raise InputError(
            f"{location}: `{key}` must be a list of texts, or labels separated by {separator!r}. "
            f"Received: {cell!r}. Without a label, write []."
        )
    names = [label_name(name if isinstance(name, str) else json.dumps(name)) for name in cell]
    if not all(names):
        raise InputError(
            f"{location}: `{key}` has an empty label among {cell!r}. Remove the empty one."
        )
    return tuple(dict.fromkeys(names))


def _examples(rows: Rows, task: MultiLabelSettings) -> list[TextExample]:
    number = {name: i for i, name in enumerate(task.labels)}
    examples = []
    for location, texts, labels in rows:
        if unknown := [name for name in labels or () if name not in number]:
            raise InputError(
                f"{location}: label {unknown[0]!r} does not occur in the training part, which has "
                f"{listed(task.labels)}. Correct or remove the row; between several labels, put "
                "--label_separator (by default a comma)."
            )
        known = None if labels is None else tuple(sorted(number[name] for name in labels))
        examples.append(TextExample(*texts, known))
    return examples


def _balance(examples: Sequence[TextExample], labels: Sequence[str]) -> str:
    counts = collections.Counter(i for example in examples for i in example.label)
    total = len(examples)
    shares = [f"{name} {counts[i]:,} ({counts[i] / total:.1%})" for i, name in enumerate(labels)]
    without = sum(not example.label for example in examples)
    mean = counts.total() / total
    return (
        f"{total:,} examples, {mean:.2f} labels each, {without:,} without one: "
        f"{listed(shares, LABELS_SHOWN)}"
    )
