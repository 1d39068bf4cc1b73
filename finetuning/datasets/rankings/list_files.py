"""Queries with their candidates: JSON lines of lists, or tables with a row for each candidate."""

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.ranking.examples import RankingExample
from finetuning.datasets.dataset import Reading
from finetuning.datasets.tables.table_files import Table

LIST = "candidates"  # of objects, in JSON lines
QUERY, LABEL = "query", "label"
_CANDIDATES = ("candidate", "passage")  # columns of a row's candidate
_ID = "id"
OPTIONAL = (LABEL, _ID)  # keys of an object that the first one may lack


def examples_of(table: Table, reading: Reading, to_predict: bool) -> list[RankingExample]:
    """Return the queries of a part.

    Rows with the same query belong together, wherever they are. A part to predict may lack labels,
    and have empty texts.

    Raises:
      InputError: a column is missing, or a query has no candidates, or candidates whose labels are
        missing or no numbers from 0.
    """
    if LIST in table.columns and not reading.text_column:
        return [*_of_lists(table, reading, to_predict)]
    return _of_rows(table, reading, to_predict)


def _of_lists(table: Table, reading: Reading, to_predict: bool) -> Iterator[RankingExample]:
    names = [QUERY, LIST, *(name for name in (_ID,) if name in table.columns)]
    rows = table.select(names, allow_empty=to_predict, unchecked=names[1:])
    for location, (query, candidates, *ids) in rows:
        if not isinstance(candidates, list) or not candidates:
            raise InputError(
                f"{location}: `{LIST}` must be a list of at least one text or object with `text` "
                f"and `{reading.label_column}`. Received: {candidates!r} for {query[:80]!r}. Add "
                "one, or remove the query."
            )
        pairs = [_item(each, reading, location, to_predict) for each in candidates]
        name = "" if not ids or ids[0] is None else str(ids[0])
        yield _example(location, query, pairs, name)


def _item(item: Any, reading: Reading, location: str, to_predict: bool) -> tuple[str, float | None]:
    """Return the text and the grade of an item of `candidates`."""
    values = item if isinstance(item, dict) else {"text": item}
    text = values.get("text")
    if not isinstance(text, str) or not (text.strip() or to_predict):
        raise InputError(
            f"{location}: each of `{LIST}` must have a `text` that is not empty. Received: "
            f"{str(item)[:80]!r}. Correct or remove it."
        )
    return text, _grade(values.get(reading.label_column), reading, location, to_predict)


def _of_rows(table: Table, reading: Reading, to_predict: bool) -> list[RankingExample]:
    texts = _text_columns(table, reading)
    has_label = reading.label_column in table.columns or not to_predict
    names = [*texts, *([reading.label_column] if has_label else [])]
    lists: dict[str, tuple[str, list[tuple[str, float | None]]]] = {}
    rows = table.select(names, allow_empty=to_predict, unchecked=names[2:])
    for location, (query, candidate, *label) in rows:
        grade = _grade(label[0] if label else None, reading, location, to_predict)
        lists.setdefault(query, (location, []))[1].append((candidate, grade))
    return [_example(location, query, pairs) for query, (location, pairs) in lists.items()]


def _text_columns(table: Table, reading: Reading) -> Sequence[str]:
    """Return the columns of the query and of the candidate."""
    if reading.text_column:
        if len(reading.text_column) != 2:
            raise InputError(
                "--text_column must be given twice for --task=ranking, for the query and the "
                f"candidate. Received: {', '.join(reading.text_column)}."
            )
        return reading.text_column
    known = [name for name in _CANDIDATES if name in table.columns]
    if QUERY not in table.columns or len(known) != 1:
        raise InputError(
            f"{table.path}:1: the header must name {QUERY} and {' or '.join(_CANDIDATES)}, or in "
            f"JSON lines {QUERY} and {LIST}. Received: {list(table.columns)}. Rename the columns, "
            "or pass --text_column twice."
        )
    return QUERY, known[0]


def _grade(value: Any, reading: Reading, location: str, to_predict: bool) -> float | None:
    """Return the grade that a cell holds, None if it is empty and may be."""
    if to_predict and (value is None or value == ""):
        return None
    try:
        grade = float(value)
    except (TypeError, ValueError):
        grade = math.nan
    if not 0 <= grade < math.inf:
        raise InputError(
            f"{location}: `{reading.label_column}` must be a number from 0, how relevant the "
            f"candidate is: 0 for one that is not. Received: {value!r}. Correct or remove it."
        )
    return grade


def _example(
    location: str, query: str, pairs: Sequence[tuple[str, float | None]], name: str = ""
) -> RankingExample:
    """Return the example of a query, whose candidates all have a grade or none.

    Raises:
      InputError: only some have one.
    """
    texts, grades = zip(*pairs, strict=True)
    known = [grade for grade in grades if grade is not None]
    if known and len(known) < len(grades):
        first, missing = grades.index(None), len(grades) - len(known)
        others = f" and {missing - 1:,} others of the query" if missing > 1 else ""
        raise InputError(
            f"{location}: of a query, either all candidates or none must have a label. Received: "
            f"{query[:80]!r}, whose candidate {first + 1}, {texts[first][:80]!r},{others} "
            f"{'has' if missing == 1 else 'have'} none. Add what is missing."
        )
    label = tuple(known) if known else None
    return RankingExample(query, texts, label, name, os.path.basename(location))
