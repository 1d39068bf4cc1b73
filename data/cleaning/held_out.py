"""Word 8-grams of evaluation files, which training texts should not have."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.runtime.files import arrow_files, paths
from albert_tf.runtime.files.compression import format_of
from albert_tf.runtime.files.json_text import parse_json
from albert_tf.runtime.files.text_files import TextFile, files_of
from data.cleaning.ngrams import ngram_hashes, word_hashes

SIZE = 8
_FLAG = "--held_out"


class HeldOut:
    """The word 8-grams of files: 8 bytes each in memory.

    Of .json, .jsonl, .ndjson, .parquet and .arrow files all texts count, of .csv and .tsv files the
    lines, and of other files the whole text.

    Args:
      patterns: globs of the files.

    Raises:
      InputNotFoundError: a glob matches nothing.
      InputError: a file cannot be read, or no text has 8 words.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        hashes: list[np.ndarray] = [np.zeros(0, np.uint64)]
        for pattern in patterns:
            if not (files := paths.files_matching(pattern, _FLAG)):
                folder = os.path.isdir(pattern)
                remedy = f"Name its files, as in '{pattern}/*'" if folder else "Check the path"
                raise InputNotFoundError(f"{_FLAG}: no file matches {pattern!r}. {remedy}.")
            for path in files:
                parts = [ngram_hashes(word_hashes(text), SIZE) for text in _texts(path)]
                hashes.append(np.unique(np.concatenate([hashes[0], *parts])))
        self._hashes: np.ndarray = np.unique(np.concatenate(hashes))
        if not len(self._hashes):
            raise InputError(
                f"{_FLAG} must name files with texts of at least {SIZE} words. Received: "
                f"{', '.join(patterns)}."
            )

    def __len__(self) -> int:
        return len(self._hashes)

    def overlaps(self, text: str) -> bool:
        """Return True if a text shares a run of 8 words with the files."""
        hashes = ngram_hashes(word_hashes(text), SIZE)
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        return bool((self._hashes[places] == hashes).any())


def _texts(path: str) -> Iterator[str]:
    if format_of(path) in arrow_files.FORMATS:
        for row in arrow_files.rows(path, _FLAG):
            yield from _strings(row)
        return
    for file in files_of(path, _FLAG):
        yield from _texts_of(file)


def _texts_of(file: TextFile) -> Iterator[str]:
    match format_of(file.name):
        case ".json":
            yield from _strings(parse_json(file.text(), f"{_FLAG}: {file.name}"))
        case ".jsonl" | ".ndjson":
            for number, line in file.lines():
                if line.strip():
                    yield from _strings(parse_json(line, f"{_FLAG}: {file.name}:{number}"))
        case ".csv" | ".tsv":
            yield from (line for _, line in file.lines())
        case _:
            yield file.text()


def _strings(value: Any) -> Iterator[str]:
    """Yield the texts in a value of JSON, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)
