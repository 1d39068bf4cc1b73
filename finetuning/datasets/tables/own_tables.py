"""Tables of a user's own texts and labels, whatever is learned from them."""

import collections
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from albert_tf.runtime.errors import InputError, InputNotFoundError, listed
from albert_tf.text.normalization import normal_form
from albert_tf.text.words import visible_part
from finetuning.datasets.dataset import Source
from finetuning.datasets.tables import prodigy, table_files
from finetuning.datasets.tables.class_folders import open_classes
from finetuning.datasets.tables.json_files import choices_in
from finetuning.datasets.tables.part_files import find
from finetuning.datasets.tables.table_files import PART_ENDS, Table, open_table

SINGLE, PAIR = ("text",), ("text_a", "text_b")
# Of vectors of 0 and 1, as JSON, Python, numpy and csv files have them.
_VALUE, _DIGITS = re.compile(r"[^\s,;|\[\]{}()'\"]+"), re.compile("[01]([_/#-]?[01]){2,}")
_CALL = re.compile(r"(?<![\w.])[A-Za-z][\w.]*+(?=[(\[{])")  # such as tensor([0, 1])
_WHOLE = re.compile("-?[0-9]{1,100}")  # a number with few enough digits for int()
_UNKNOWN = {str([value]) for value in (-1, -1.0, "-1", "-1.0")}
_BINARY = re.compile(r"[01](\.0*)?|true|false", re.IGNORECASE)
# `file:line`, text and second text, and the label if the part has labels.
Rows = Iterator[tuple[str, tuple[str, str | None], str | None]]


def ordered_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Return labels, each once: whole numbers by value, then the others by name."""

    def key(label: str) -> tuple[bool, int, str]:
        is_number = bool(_WHOLE.fullmatch(label))
        return not is_number, int(label) if is_number else 0, label

    return tuple(sorted(set(labels), key=key))


def note_similar(labels: Sequence[str]) -> None:
    """Print a note on labels that differ only in case."""
    by_form: dict[str, list[str]] = collections.defaultdict(list)
    for label in labels:
        by_form[label.casefold()].append(label)
    if similar := [", ".join(names) for names in by_form.values() if len(names) > 1]:
        print(
            f"note: labels that differ only in case are different labels: {listed(similar)}. If "
            "they are the same, correct the files."
        )


def note_absent(labels: Sequence[str], source: Source, condition: str = "") -> None:
    """Print a note on the labels, if any, that no dev example has.

    Args:
      labels: the labels.
      source: the location of the data.
      condition: when their F1 counts as 0; empty: always.
    """
    if labels:
        print(
            f"note: no dev example has the label {listed(labels)}. In macro_f1, its F1 counts as "
            f"0{condition}." + (" Raise --dev_fraction." if source.reading.dev_fraction else "")
        )


def open_part(
    source: Source, part: str, optional: Sequence[str] = (), to_predict: bool = False
) -> Table:
    """Return the table of a part; see `open_table` for `optional`.

    Rows that were rejected in Prodigy are left out, but not of a part `to_predict` without labels.
    Where there is no file, a folder of the part may have one for each class (`open_classes`).

    Raises:
      InputNotFoundError: there is no such file.
      InputError: there are several such files.
    """
    folder = source.data_dir or ""
    try:
        path = find(folder, [part + end for end in PART_ENDS])
    except InputNotFoundError:
        if classes := open_classes(folder, part, allow_empty=to_predict):
            return classes
        raise
    labels = source.reading.columns_of_labels

    def keeps_rejected(columns: Sequence[str]) -> bool:
        is_used = prodigy.KEY in (*source.reading.text_column, *labels)
        return is_used or (to_predict and set(labels).isdisjoint(columns))

    table = dataclasses.replace(
        open_table(
            path,
            optional=(*optional, "id") if to_predict else optional,
            keeps_rejected=keeps_rejected,
        ),
        remedy="Rename the columns (or add a header, if the file has none), or train with "
        "--text_column and --label_column.",
    )
    return without_unknown(table, labels) if to_predict else table


def without_unknown(table: Table, labels: Sequence[str]) -> Table:
    """Return a table to predict without a column of labels that are all -1.

    Hugging Face's test parts have that for labels that are kept secret.
    """
    columns, records = list(table.columns), list(table.records)
    for place in [i for i, name in enumerate(columns) if name in labels]:
        if records and all(str(cells[place : place + 1]) in _UNKNOWN for _, cells in records):
            print(f"note: `{columns[place]}` of {table.path} is -1 in all rows, so it is unknown.")
            columns[place] = ""
    return dataclasses.replace(table, columns=tuple(columns), records=iter(records))


def text_columns(source: Source, table: Table) -> tuple[str, ...]:
    """Return the columns of the text or texts of a part.

    These are the user's own, else `text_a` and `text_b` if the table has one of them, else `text`.

    Raises:
      InputError: the table has `text` and one of the others.
    """
    if source.reading.text_column:
        return source.reading.text_column
    pair = [name for name in PAIR if name in table.columns]
    if pair and "text" in table.columns:
        raise InputError(
            f"{table.path}:1: the header must name either text, or text_a and text_b, in lower "
            f"case. Received: {list(table.columns)}. {table.remedy}"
        )
    return PAIR if pair else SINGLE


def rows_of(
    table: Table, texts: Sequence[str], label: str | None, allow_empty: bool = False
) -> Rows:
    """Yield the rows of a part.

    Args:
      table: the part.
      texts: the column of the text, or the two columns of a pair.
      label: the column of the label. None: the part has no labels.
      allow_empty: accept empty texts, and rows without a label, which is then None.
    """
    names = (*texts, label) if label else texts
    labels = names[len(texts) :]
    rows = table.select(
        names,
        allow_empty=allow_empty,
        lists_of_one=labels,
        may_lack=labels if allow_empty else (),
    )
    for location, cells in named(rows, label) if label else rows:
        if label and choices_in(cells[-1], location) is not cells[-1]:
            raise InputError(
                f"{location}: `{label}` must hold one label. Received: {cells[-1]!r}, as Label "
                "Studio writes several. For several, pass --task=multi_label."
            )
        yield (
            location,
            (cells[0], cells[1] if len(texts) > 1 else None),
            label_name(cells[-1]) or None if label else None,
        )


def label_name(text: str) -> str:
    """Return the name of a label in composed characters (NFC), without invisible ones at its ends.

    Names that look the same are then the same label.
    """
    return normal_form("NFC", visible_part(text)[1])


def named(rows: table_files.Rows, column: str, several: bool = False) -> table_files.Rows:
    """Yield rows whose last cell has the label or labels, after a check that they are names.

    Args:
      rows: all rows of a part.
      column: the name of the last cell.
      several: a row may have several names: texts such as 001 are vectors too, and vectors may have
        different lengths.

    Raises:
      InputError: all that are not empty are vectors of 0 and 1, by default of the same length.
    """
    read = list(rows)
    lengths = [_vector_length(cells[-1], several) for _, cells in read]
    (first, cells), length = next(
        ((row, size) for row, size in zip(read, lengths, strict=True) if size != 0),
        (("", [""]), 1),
    )
    if length > 1 and (1 not in lengths if several else set(lengths) <= {0, length}):
        raise InputError(
            f"{first}: `{column}` must hold the names of labels. Received: {cells[-1]!r}, and "
            "such a vector of 0 and 1 in every row that has labels. Write the names of the labels "
            "that have a 1, such as joy,love or, in JSON lines, a list of them, for "
            "--task=multi_label."
        )
    yield from read


def _vector_length(cell: Any, digits: bool) -> int:
    """Return the number of the values of a vector of 0 and 1: 0 if it is empty, 1 if it is none."""
    values = _VALUE.findall(_CALL.sub("", str(cell), count=1))
    if isinstance(cell, str) and len(values) == 1 and _DIGITS.fullmatch(values[0]):
        if digits or not values[0].isdecimal():
            values = re.findall("[01]", values[0])
    return len(values) if all(map(_BINARY.fullmatch, values)) else 1


def with_ids(examples: Sequence[Any], table: Table) -> Sequence[Any]:
    """Return the examples of a table that was read, with their ids if it has the column `id`."""
    if not table.ids:
        return examples
    pairs = zip(examples, table.ids, strict=True)
    return [dataclasses.replace(example, id=name) for example, name in pairs]


def examples_to_predict(
    source: Source, part: str, pair: bool, examples_of: Callable[[Rows], Sequence[Any]]
) -> Sequence[Any]:
    """Return `examples_of` the rows of a part, which may lack labels and texts, with their ids."""
    label = source.reading.label_column
    table = open_part(source, part, to_predict=True)
    texts = source.reading.text_column or (PAIR if pair else SINGLE)
    known = label if label in table.columns else None
    return with_ids(examples_of(rows_of(table, texts, known, allow_empty=True)), table)
