"""Rows as objects: JSON lines, lists of JSON and parquet, in one shape for all tools."""

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from albert_tf.runtime.files import arrow_files
from albert_tf.runtime.files.compression import format_of
from albert_tf.runtime.files.json_text import parse_json
from albert_tf.runtime.files.text_files import lines_of, text_of

FORMATS = (".jsonl", ".json", *arrow_files.FORMATS)
# The last two with any number of files: as on the Hub, and as `save_to_disk` of datasets writes.
PART_ENDS = (*FORMATS, "-00000-of-00001.parquet", "/data-00000-of-00001.arrow")
_CHOICES = re.compile(r'\s*\{\s*"choices"\s*:')
_NAMES = {"start_offset": "start", "end_offset": "end"}  # doccano's


def object_rows(path: str) -> Iterator[tuple[int, str, Any]]:
    """Yield the number, the text and the value of each row, in the shape of `normalized`.

    The number is that of the line, in a list of JSON and in parquet that of the row, from 1.

    Raises:
      InputError: the file or a line cannot be read.
    """
    kind = format_of(path)
    if kind in arrow_files.FORMATS:
        shards = map(arrow_files.rows, arrow_files.shards_of(path))
        for number, row in enumerate(itertools.chain.from_iterable(shards), start=1):
            yield number, str(row), normalized(row)
        return
    lines = lines_of(path)
    if kind == ".json":
        content = text_of(path)
        if content.lstrip().startswith("["):
            for number, value in enumerate(parse_json(content, path), start=1):
                yield number, str(value), normalized(value)
            return
        lines = iter(enumerate(content.split("\n"), start=1))
    for number, line in lines:
        if line.strip():
            yield number, line, normalized(parse_json(line, f"{path}:{number}"))


def normalized(row: Any) -> Any:
    """Return a row with the values of other tools in the shape that this project reads.

    | tool | value | becomes |
    |---|---|---|
    | doccano | spans with `start_offset`, `end_offset` | spans with `start`, `end` |
    | Label Studio | spans with `labels`: [X] | spans with `label`: X |
    | Label Studio | {"choices": [X, Y]} | [X, Y] |
    | datasets | answers as an object of lists | answers as a list of objects |
    """
    return {key: _value(value) for key, value in row.items()} if isinstance(row, dict) else row


def _value(value: Any) -> Any:
    match value:
        case {"choices": list(choices), **rest} if not rest:
            return choices
        case {"text": list(texts), "answer_start": list(starts)} if len(texts) == len(starts):
            pairs = zip(texts, starts, strict=True)
            return [{"text": text, "answer_start": start} for text, start in pairs]
        case [*items]:
            return [_span(item) for item in items]
    return value


def _span(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    span = {_NAMES.get(key, key): value for key, value in item.items()}
    match span:
        case {"labels": [label]} if "label" not in span:
            span["label"] = label
    return span


def choices_in(cell: Any, location: str) -> Any:
    """Return the list of several labels that Label Studio writes into a cell; other cells as is."""
    if isinstance(cell, str) and _CHOICES.match(cell):
        return _value(parse_json(cell, location))
    return cell


def as_text(value: Any) -> Any:
    """Return a number or Boolean of JSON as the text that it was; other values as they are."""
    return json.dumps(value) if isinstance(value, int | float) else value


def only_item(value: Any) -> Any:
    """Return the item of a list of one; other values as they are."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value
