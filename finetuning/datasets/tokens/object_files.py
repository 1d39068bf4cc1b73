"""Readers of labeled tokens and spans in objects: JSON lines and lists, and parquet.

An object has a text and its spans, which are counted in characters, or tokens and their tags.
"""

import functools
import itertools
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from albert_tf.runtime.errors import InputError, shortened
from albert_tf.tasks.tokens.examples import TokenExample
from albert_tf.text.normalization import normal_form
from albert_tf.text.words import in_ranges, word_bounds
from finetuning.datasets.dataset import Reading
from finetuning.datasets.tables import prodigy
from finetuning.datasets.tables.json_files import object_rows
from finetuning.datasets.tokens.conll_tags import Span
from finetuning.datasets.tokens.token_files import Sentence

_SPANS = ("entities", "label", "labels", "spans")  # keys of the spans
_TOKENS, _TAGS = ("tokens", "words"), ("ner_tags", "tags", "labels", "label")
_COVERED = ("text", "word")  # keys of the text that a span covers
_OFFSETS = (
    "Offsets count characters (Unicode code points), not bytes or UTF-16 units (as in JavaScript, "
    "where an emoji counts twice; for these, train with --offsets=utf16)"
)
Row = tuple[int, str, Any]  # its number, its text and its object


def rows_of(path: str, reading: Reading, to_predict: bool) -> list[Row]:
    """Return the objects of a file, without those that were rejected in Prodigy.

    In a part `to_predict` without labels, these stay.

    Raises:
      InputError: the file cannot be read, or has no objects.
    """
    rows = list(object_rows(path))
    keys = {*_SPANS, *_TAGS} if _has_default_label(reading) else {reading.label_column}
    has_labels = any(isinstance(row, dict) and not keys.isdisjoint(row) for _, _, row in rows)
    if has_labels or not to_predict:
        rows = list(prodigy.accepted(path, rows, _answer))
    if not rows:
        raise InputError(f"{path} holds no texts. Write a JSON object on each line.")
    return rows


def has_tokens(rows: Sequence[Row], reading: Reading) -> bool:
    """Return True if the first object has tokens instead of a text."""
    return _tokens_key(rows[0][2], reading) is not None


def _tokens_key(row: Any, reading: Reading) -> str | None:
    """Return the key of the tokens of an object, None if it has a text and spans.

    An object with a text besides, as datasets have them, needs a tag for each token.
    """
    given = text_key_of(reading.text_column)
    keys = (given, *_TOKENS) if given == "text" else (given,)
    found = [key for key in keys if isinstance(row, dict) and key in row]
    lists = [key for key in found if isinstance(row[key], list)]
    if not lists or lists[0] == found[0]:
        return lists[0] if lists else None
    tags = row.get(_tags_key(row, reading))
    has_tags = isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)
    return lists[0] if has_tags and 0 < len(tags) == len(row[lists[0]]) else None


def _tags_key(row: Any, reading: Reading) -> str:
    """Return the key of the tags of an object with tokens."""
    if not _has_default_label(reading):
        return reading.label_column
    return next((name for name in _TAGS if name in row), _TAGS[-1])


def read_tokens(
    path: str, rows: Sequence[Row], reading: Reading, allow_empty: bool = False
) -> list[Sentence]:
    """Return the tokens of each object, with its tags if it has a key for them.

    The tokens are under `tokens` or `words`, the tags under `ner_tags`, `tags`, `labels` or
    `label`, or under the reading's own keys. Objects without a token are left out unless they are
    allowed.

    Raises:
      InputError: an object has no list of tokens, or not a tag for each, or a token is empty or a
        tag no name.
    """
    sentences = []
    for number, line, row in rows:
        if (key := _tokens_key(row, reading)) is None:
            raise InputError(
                f"{path}:{number} must be an object with a list of tokens, as the first one is. "
                f"Received: {line[:80]!r}. Correct or remove it."
            )
        tokens = row[key]
        tags = row.get(tags_key := _tags_key(row, reading))
        _require_texts(tokens, f"{path}:{number}: `{key}`")
        if tags is not None:
            _require_texts(tags, f"{path}:{number}: `{tags_key}`")
        if tags is not None and len(tags) != len(tokens):
            raise InputError(
                f"{path}:{number}: each token must have a tag. Received: {len(tokens)} tokens and "
                f"{len(tags)} tags. Correct or remove the row."
            )
        if tokens or allow_empty:
            lines = (number,) * max(1, len(tokens))
            found = None if tags is None else tuple(tags)
            sentences.append(Sentence(lines, tuple(tokens), found, id=row.get("id", "")))
    if not any(sentence.tokens for sentence in sentences):
        raise InputError(f"{path} holds no tokens. Write a list of them in each row.")
    return sentences


def _require_texts(values: Any, what: str) -> None:
    items = values if isinstance(values, list) else [values]
    wrong = [item for item in items if not isinstance(item, str) or not item.strip()]
    if wrong or items is not values:
        raise InputError(
            f"{what} must be a list of texts that are not empty. Received: "
            f"{shortened(wrong[0] if wrong else values)}. Write the names of the tags, or pass "
            "--text_column and --label_column."
        )


def _has_default_label(reading: Reading) -> bool:
    return reading.label_column == "label" or reading.label_column.isdecimal()


def read_spans(
    path: str, rows: Sequence[Row], reading: Reading, allow_empty: bool
) -> Iterator[tuple[str, TokenExample]]:
    """Yield `file:line` and the text of each object, with its spans if it has a key for them.

    The spans are under `entities`, `label`, `labels` or `spans`, or under the reading's own key.
    Each is a list [start, end, label] or an object with these keys. White space at their ends does
    not count. Print a note if spans begin or end with white space or inside a word.

    Raises:
      InputError: a line is not such an object, or its spans overlap or lie outside the text, or the
        `text` or `word` of a span is not in its place.
    """
    inexact: list[str] = []  # descriptions of spans with white space or a part of a word
    text_key = text_key_of(reading.text_column)
    keys = _SPANS if _has_default_label(reading) else (reading.label_column,)
    for number, line, row in rows:
        location = f"{path}:{number}"
        text = row.get(text_key) if isinstance(row, dict) else None
        if not isinstance(text, str) or not (allow_empty or text.strip()):
            raise InputError(
                f"{location} must be a JSON object whose key `{text_key}` is a text that is not "
                f"empty, or the key `tokens` with a list. Received: {line[:80]!r}. Correct or "
                "remove the line."
            )
        annotations = next((row[key] for key in keys if key in row), None)
        places = _utf16_places(text) if reading.offsets == "utf16" else None
        spans = (
            None if annotations is None else _spans(annotations, text, location, inexact, places)
        )
        yield location, TokenExample(text, None, spans, row.get("id", ""))
    if inexact:
        print(
            f"note: {inexact[0]}, the first of {len(inexact):,} spans that begin or end with white "
            f"space or inside a word. {_OFFSETS}.",
            file=sys.stderr,
        )


def _answer(row: tuple[int, str, Any]) -> Any:
    return row[2].get(prodigy.KEY) if isinstance(row[2], dict) else None


def text_key_of(text_column: Sequence[str]) -> str:
    """Return the key of the text in JSON lines; the number of a CoNLL column is none."""
    return next((name for name in text_column if not name.isdecimal()), "text")


def _utf16_places(text: str) -> dict[int, int]:
    """Return the number of each character by its offset in UTF-16 units, also for the end."""
    sizes = (1 + (character > "\uffff") for character in text)
    return {unit: place for place, unit in enumerate(itertools.accumulate(sizes, initial=0))}


def _spans(
    values: Any, text: str, location: str, inexact: list[str], places: dict[int, int] | None
) -> tuple[Span, ...]:
    if not isinstance(values, list):
        raise InputError(
            f"{location}: the spans must be a list of [start, end, label]. Received: {values!r}."
        )
    spans = sorted(_span(value, text, location, inexact, places) for value in values)
    for one, other in itertools.pairwise(spans):
        if other[0] < one[1]:
            raise InputError(
                f"{location}: spans must not overlap. Received: {one} and {other}. Remove one of "
                "them."
            )
    return tuple(spans)


def _span(
    value: Any, text: str, location: str, inexact: list[str], places: dict[int, int] | None
) -> Span:
    fields = value
    if isinstance(value, dict):
        fields = [value.get(key) for key in ("start", "end", "label")]
    types = [type(field) for field in fields] if isinstance(fields, list) else []
    if types != [int, int, str]:
        raise InputError(
            f"{location}: a span must be [start, end, label], or an object with these keys: two "
            f"character offsets (integers) and a label (string). Received: {value!r}."
        )
    start, end, label = fields
    if places is not None:  # -1 is outside of the text
        start, end = places.get(start, -1), places.get(end, -1)
    covered = text[start:end] if 0 <= start <= end <= len(text) else ""
    if not covered.strip() or not label.strip():
        raise InputError(
            f"{location}: a span must have a label, and cover text between characters 0 and "
            f"{len(text)}. Received: {value!r}. {_OFFSETS}."
        )
    for given in [value.get(key) for key in _COVERED] if isinstance(value, dict) else []:
        if isinstance(given, str) and _plain(given) != _plain(covered):
            raise InputError(
                f"{location}: the span [{start}, {end}] is {covered!r}, but its text is {given!r}. "
                f"{_OFFSETS}. Correct them, or the text."
            )
    sides = [text[max(0, i - 1) : i + 1] for i in (start, end)]
    if covered != covered.strip() or any(map(_are_one_word, sides)):
        inexact.append(f"{location}: the span [{start}, {end}] is {covered!r}")
    start += len(covered) - len(covered.lstrip())
    return start, start + len(covered.strip()), label


def _plain(text: str) -> str:
    """Return a text without what tokenizers may change: case, accents and white space."""
    characters = normal_form("NFKD", text.casefold())
    return "".join(c for c in characters if not c.isspace() and not unicodedata.combining(c))


@functools.cache
def _are_one_word(pair: str) -> bool:
    """Return True for two characters that belong to one word if one follows the other."""
    codes = np.array([ord(character) for character in pair])
    return len(pair) == 2 and bool(in_ranges(codes, word_bounds()).all())
