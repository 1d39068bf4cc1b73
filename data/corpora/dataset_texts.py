"""The texts in files of datasets, whatever else these hold."""

import csv
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from albert_tf.runtime.files import arrow_files
from albert_tf.runtime.files.compression import format_of
from albert_tf.runtime.files.json_text import parse_json
from albert_tf.runtime.files.text_files import TextFile, csv_separator, files_of

_TOKEN_COLUMN = {".conll": 0, ".bio": 0, ".conllu": 1}  # where the tokens are, by suffix


def texts_in(path: str, flag: str) -> Iterator[str]:
    """Yield the texts of a file, which may be compressed.

    Of .json, .jsonl, .ndjson, .parquet and .arrow files these are all strings, of .csv and .tsv
    files the cells, of .conll, .bio and .conllu files the sentences, of other files the whole text.

    Raises:
      InputError: the file cannot be read; `flag` names it.
    """
    if format_of(path) in arrow_files.FORMATS:
        for row in arrow_files.rows(path, flag):
            yield from _strings(row)
        return
    for file in files_of(path, flag):
        yield from _texts_of(file, flag)


def _texts_of(file: TextFile, flag: str) -> Iterator[str]:
    lines = (line for _, line in file.lines())
    match suffix := format_of(file.name):
        case ".json":
            yield from _strings(parse_json(file.text(), f"{flag}: {file.name}"))
        case ".jsonl" | ".ndjson":
            for number, line in file.lines():
                if line.strip():
                    yield from _strings(parse_json(line, f"{flag}: {file.name}:{number}"))
        case ".csv":
            csv.field_size_limit(sys.maxsize)  # the default is 131,072 characters
            first = next(lines, "")
            separator, is_named = csv_separator(first)
            rows = [*lines] if is_named else [first, *lines]
            for mark in dict.fromkeys((separator, ",")):  # the first line may be a text
                for row in csv.reader(rows, delimiter=mark):
                    yield from row
        case ".tsv":
            for line in lines:
                yield from line.rstrip("\r\n").split("\t")
        case ".conll" | ".bio" | ".conllu":
            yield from _sentences(lines, _TOKEN_COLUMN[suffix])
        case _:
            yield file.text()


def _sentences(lines: Iterable[str], column: int) -> Iterator[str]:
    tokens: list[str] = []
    for line in [*lines, ""]:
        cells = line.split()
        if not cells and tokens:
            yield " ".join(tokens)
            tokens = []
        elif len(cells) > column and not line.startswith("# "):
            tokens.append(cells[column])


def _strings(value: Any) -> Iterator[str]:
    """Yield the texts in a value of JSON, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)
