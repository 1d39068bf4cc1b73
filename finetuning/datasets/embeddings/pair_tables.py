"""Tables of texts, pairs, contrasts and scored pairs; their header says which they hold."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.embedding.examples import ContrastExample
from albert_tf.tasks.examples import TextExample
from finetuning.datasets.dataset import Reading
from finetuning.datasets.tables.own_tables import PAIR, SINGLE, without_unknown
from finetuning.datasets.tables.table_files import Rows, Table, note_if_quoted

GLUE_PAIR = {"sentence1", "sentence2"}
PAIRS = (
    PAIR,
    ("sentence1", "sentence2"),
    ("query", "passage"),
    ("query", "positive"),
    ("anchor", "positive"),
)
LIST = "negatives"  # in JSON lines
_SCORE = "score"
_SHOWN_LIST = re.compile(r"\s*\[.*\]\s*", re.DOTALL)  # as pandas writes it into a cell
_NEGATIVE = re.compile(r"negative(_?\d+)?")


def is_optional(column: str, reading: Reading) -> bool:
    """Return True for columns that pairs may have or not: scores and negatives."""
    return column in (reading.label_column, _SCORE) or bool(_NEGATIVE.fullmatch(column))


def examples_of(table: Table, reading: Reading, allow_empty: bool = False) -> list[TextExample]:
    """Return the examples of a table.

    They are texts (`text`), or pairs of one of `PAIRS`, which may have a score (`score`, or the
    column of labels), or negatives: the columns `negative`, `negative_1`, ..., of which cells may
    be empty, or in JSON lines a list `negatives`. With `allow_empty`, texts may be empty too.

    Raises:
      InputError: the header names neither, or a row is invalid or has a score and negatives.
    """
    texts = _text_columns(table, reading)
    if allow_empty:
        table = without_unknown(table, (reading.label_column, _SCORE))
    scores = [name for name in (reading.label_column, _SCORE) if name in table.columns][:1]
    negatives = [name for name in table.columns if _NEGATIVE.fullmatch(name)]
    if LIST in table.columns:
        negatives.append(LIST)
    if len(texts) == 1:
        rows = table.select(texts, allow_empty=allow_empty)
        return [TextExample(first) for _, (first,) in rows]
    if scores:
        return [*_scored(table, texts, scores[0], negatives, allow_empty)]
    return [*_contrasts(table, texts, negatives, allow_empty)]


def _scored(
    table: Table,
    texts: Sequence[str],
    score: str,
    negatives: Sequence[str],
    allow_empty: bool,
) -> Iterator[TextExample]:
    rows = _rows(table, (*texts, score, *negatives), negatives, allow_empty)
    for location, (a, b, number, *others) in rows:
        if any(others):
            raise InputError(
                f"{location}: a row must not have both a score and negatives. Received: "
                f"`{score}` {number} and negatives. Make a file of each."
            )
        yield TextExample(a, b, _number(number, location, score))


def _rows(table: Table, names: Sequence[str], unchecked: Sequence[str], allow_empty: bool) -> Rows:
    rows = table.select(names, allow_empty=allow_empty, unchecked=unchecked)
    return note_if_quoted(rows, 2) if table.quotes_are_text else rows


def _text_columns(table: Table, reading: Reading) -> tuple[str, ...]:
    if reading.text_column:
        return reading.text_column
    names = set(table.columns)
    matches = [columns for columns in (SINGLE, *PAIRS) if names.issuperset(columns)]
    if len(matches) != 1:
        raise InputError(
            f"{table.path}:1: the header must name {SINGLE[0]}, or one of the pairs "
            f"{', '.join(' and '.join(pair) for pair in PAIRS)}. Received: {list(table.columns)}. "
            "Rename the columns, or pass --text_column."
        )
    return matches[0]


def _contrasts(
    table: Table, texts: Sequence[str], negatives: Sequence[str], allow_empty: bool
) -> Iterator[TextExample]:
    for location, (a, b, *others) in _rows(table, (*texts, *negatives), negatives, allow_empty):
        cells: list[Any] = []
        for name, value in zip(negatives, others, strict=True):
            if name == LIST and isinstance(value, str) and _SHOWN_LIST.fullmatch(value):
                raise InputError(
                    f"{location}: `{LIST}` must be a list. Received: {value[:80]!r}, a text. Write "
                    "JSON lines or parquet, or the columns negative_1, negative_2, ..."
                )
            cells += value if name == LIST and isinstance(value, list) else [value]
        given = tuple(cell for cell in cells if cell not in (None, ""))
        if wrong := [cell for cell in given if not (isinstance(cell, str) and cell.strip())]:
            raise InputError(
                f"{location}: negatives must be texts that are not blank, and `{LIST}` a list of "
                f"them. Received: {wrong[0]!r}. Correct or remove it."
            )
        yield ContrastExample(a, b, negatives=given)


def _number(text: str, location: str, column: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(
            f"{location}: `{column}` must be a number, how alike the texts are. Received: "
            f"{text!r}. Correct or remove the row, or rename a column that holds something else."
        )
    return number
