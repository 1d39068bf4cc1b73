"""Reader of SQuAD's and CMRC 2018's JSON files, and of SQuAD prepared by TFDS.

SQuAD may also be flat, as Hugging Face's datasets and scripts hold it: a list `data`, JSON lines or
parquet of questions, each with its context.
"""

import dataclasses
import json
import reprlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files.compression import format_of
from albert_tf.runtime.files.json_text import parse_json
from albert_tf.runtime.files.text_files import text_of
from albert_tf.tasks.spans.examples import SpanExample
from data.corpora.tfds_texts import tfds_rows
from finetuning.datasets.dataset import Source
from finetuning.datasets.tables.json_files import PART_ENDS, normalized, object_rows
from finetuning.datasets.tables.part_files import find

_ENDS = dict.fromkeys([".json", *PART_ENDS])
_SQUAD = (
    "SQuAD's layout: data[].paragraphs[] with context and qas[], whose items have id, question and "
    "answers[], whose items have text and answer_start; or flat: each item of data[], line or row "
    "has id, question, context and answers"
)
_CMRC = (
    "CMRC's layout: a list of objects with context_text and qas[], whose items have query_id, "
    "query_text and answers[] of texts; or, if it is not a list, in SQuAD's layout"
)


def read_part(
    source: Source, part: str, version: str, allow_empty: bool = False
) -> tuple[str, list[SpanExample]]:
    """Return the path or TFDS name of a part, and its examples.

    Their answers may be missing or out of place; with `allow_empty`, question or context may be
    empty. In version 2.0, a question without answers has none, marked or not, if the part has
    answers at all.

    Raises:
      InputError: the layout is wrong, a text is empty, there are no questions, or two questions
        have the same id.
    """
    if source.tfds:
        name, split = f"squad/v{version}", part.replace("dev", "validation")
        location = f"{name}:{split}"
        rows = tfds_rows(name, source.data_dir, split)[1]
        examples = list(_of_tfds(rows, location, allow_empty))
    else:
        location = find(source.data_dir or "", _names(part, version))
        examples = list(questions_of(location, allow_empty))
    ids = Counter(example.id for example in examples)
    if not examples:
        raise InputError(f"{location} holds no questions.")
    if len(ids) < len(examples):
        (first, count), *_ = ids.most_common(1)
        raise InputError(
            f"{location}: every question must have a unique id. Received: {count} questions with "
            f"id {first!r}."
        )
    return location, _unanswerable(location, examples) if version == "2.0" else examples


def _names(part: str, version: str) -> list[str]:
    return [f"{part}-v{version}.json", *(part + end for end in _ENDS)]


def _unanswerable(location: str, examples: list[SpanExample]) -> list[SpanExample]:
    """Return the examples, those without answers marked as the official evaluator takes them."""
    unmarked = [example for example in examples if not (example.answers or example.is_impossible)]
    if not unmarked or len(unmarked) == len(examples):
        return examples
    print(
        f"note: {location}: {len(unmarked):,} questions have no answers and no `is_impossible`, so "
        f"they are taken for unanswerable (first: {unmarked[0].id!r}).",
        file=sys.stderr,
    )
    return [
        example if example.answers else dataclasses.replace(example, is_impossible=True)
        for example in examples
    ]


def require_version(location: str, examples: list[SpanExample], version: str) -> None:
    """Check that no question of version 1.1 is marked as having no answer.

    Raises:
      InputError: a question of version 1.1 is marked so.
    """
    for example in examples:
        if example.is_impossible and version == "1.1":
            raise InputError(
                f"{location}, question {example.id!r}: `is_impossible` must not be set for "
                "--task=squad1. Use --task=squad2, or remove the question."
            )


def require_answers(location: str, examples: list[SpanExample], version: str) -> None:
    """Check that every question has an answer, or in version 2.0 is marked as having none.

    Raises:
      InputError: a question has no answer and no such mark.
    """
    require_version(location, examples, version)
    for example in examples:
        if not (example.answers or example.is_impossible):
            raise InputError(
                f"{location}, question {example.id!r} must have an answer in this part. Add it, or "
                "remove the question."
            )


def drop_misplaced(location: str, examples: list[SpanExample]) -> list[SpanExample]:
    """Return the examples whose answer is at its offset, and print how many were dropped.

    Raises:
      InputError: no answer is at its offset.
    """
    valid = [example for example in examples if _is_at_offset(example)]
    wrong = [example.id for example in examples if not _is_at_offset(example)]
    if wrong and not any(example.answers for example in valid):
        raise InputError(
            f"{location}, question {wrong[0]!r}: the answer must be in the context, in SQuAD's "
            "layout at character `answer_start`, but no answer in the file is. Check that the "
            "offsets count characters (Unicode code points), not bytes or UTF-16 units."
        )
    skipped = (
        f", {len(wrong):,} dropped: their answer is not at its offset in the context"
        if wrong
        else ""
    )
    first = f" (first: {wrong[0]!r})" if wrong else ""
    impossible = sum(example.is_impossible for example in examples)
    unanswered = f", {impossible:,} of them without an answer" if impossible else ""
    print(f"{location}: {len(examples):,} questions{unanswered}{skipped}{first}")
    return valid


def _is_at_offset(example: SpanExample) -> bool:
    return all(
        start >= 0 and example.context.startswith(text, start)
        for start, text in example.answers[:1]
    )


def questions_of(path: str, allow_empty: bool = False) -> Iterator[SpanExample]:
    """Yield the questions of a JSON file, plain or compressed, or of parquet.

    A list with `context_text` is read in CMRC's layout, anything else in SQuAD's. With
    `allow_empty`, question or context may be empty.

    Raises:
      InputError: the file is not valid JSON, its layout is wrong, or a text is empty.
    """
    text = text_of(path) if format_of(path) == ".json" else None
    if text is None or _has_lines(text):
        rows = ((f"row {number}", row) for number, _, row in object_rows(path))
        layout, questions = _SQUAD, _of_flat(rows, allow_empty)
    elif not isinstance(content := parse_json(text, path), list):
        layout, questions = _SQUAD, _of_squad(content, allow_empty)
    elif content and isinstance(content[0], dict) and "question" in content[0]:
        rows = ((f"[{i}]", row) for i, row in enumerate(content))
        layout, questions = _SQUAD, _of_flat(rows, allow_empty)
    else:
        layout, questions = _CMRC, _of_cmrc(content, allow_empty)
    try:
        yield from questions
    except ValueError as error:
        raise InputError(f"{path} must be in {layout}. Received: {error}.") from None


def _has_lines(text: str) -> bool:
    """Return True if the first line of a .json file is a question, as in JSON lines."""
    try:
        first = json.loads(text.lstrip().partition("\n")[0])
    except ValueError:
        return False
    return isinstance(first, dict) and "question" in first


def _of_squad(content: Any, allow_empty: bool) -> Iterator[SpanExample]:
    """Yield each question.

    Raises:
      ValueError: a value does not fit; the message contains the value and its place.
    """
    for at_article, article in _items(content, "data", ""):
        if isinstance(article, dict) and "question" in article and "paragraphs" not in article:
            yield from _of_flat([(at_article, article)], allow_empty)
            continue
        for at_paragraph, paragraph in _items(article, "paragraphs", at_article):
            context = _text(paragraph, "context", at_paragraph, allow_empty)
            for location, row in _items(paragraph, "qas", at_paragraph):
                yield _question(row, context, location, allow_empty)


def _of_flat(rows: Iterable[tuple[str, Any]], allow_empty: bool) -> Iterator[SpanExample]:
    """Yield the question in each row, whose location is given, as `_of_squad` does."""
    for location, row in rows:
        context = _text(row, "context", location, allow_empty)
        yield _question(row, context, location, allow_empty)


def _question(row: Any, context: str, location: str, allow_empty: bool) -> SpanExample:
    row = normalized(row)
    answers = tuple(
        (_get(answer, "answer_start", int, at), _get(answer, "text", str, at))
        for at, answer in _items(row, "answers", location, [])
    )
    question = _text(row, "question", location, allow_empty)
    is_impossible = _get(row, "is_impossible", bool, location, False)
    return _example(question, context, _id(row, "id", location), answers, is_impossible)


def _of_cmrc(content: Any, allow_empty: bool) -> Iterator[SpanExample]:
    """Yield each question, as `_of_squad` does.

    An answer is at its first occurrence in the context, or at -1.
    """
    for i, passage in enumerate(content):
        context = _text(passage, "context_text", f"[{i}]", allow_empty)
        for location, row in _items(passage, "qas", f"[{i}]"):
            texts = [answer for _, answer in _items(row, "answers", location, [])]
            if wrong := [text for text in texts if not isinstance(text, str)]:
                raise ValueError(f"an answer {wrong[0]!r} at {location}")
            answers = tuple((context.find(text), text) for text in texts)
            question = _text(row, "query_text", location, allow_empty)
            yield _example(question, context, _id(row, "query_id", location), answers, False)


def _items(record: Any, key: str, location: str, default: Any = None) -> Iterator[tuple[str, Any]]:
    """Yield the place and the value of each item of the list under a key.

    Raises:
      ValueError: there is no such list.
    """
    for i, item in enumerate(_get(record, key, list, location, default)):
        yield f"{location}.{key}[{i}]".lstrip("."), item


def _text(record: Any, key: str, location: str, allow_empty: bool = False) -> str:
    """Return the text under a key.

    Raises:
      ValueError: there is no text, or it is empty and must not be.
    """
    text = _get(record, key, str, location)
    if not (allow_empty or text.strip()):
        raise ValueError(f"`{key}` is empty at {location}")
    return text


def _id(record: Any, key: str, location: str) -> str:
    """Return the text or the integer under a key as a text; the errors are those of `_text`."""
    value = record.get(key) if isinstance(record, dict) else None
    return str(value) if type(value) is int else _text(record, key, location)


def _get(record: Any, key: str, kind: type, location: str, default: Any = None) -> Any:
    """Return the value under a key; null is a missing value if there is a default.

    Raises:
      ValueError: the record is not an object, the key is missing, or the value has another type.
    """
    location = location or "the top"
    if not isinstance(record, dict):
        raise ValueError(f"{reprlib.repr(record)} at {location}")
    if key not in record and default is None:
        raise ValueError(f"no `{key}` at {location}")
    value = record.get(key, default)
    value = default if value is None else value
    if type(value) is not kind:  # true and false do not count as numbers
        raise ValueError(f"`{key}` {reprlib.repr(value)} at {location}")
    return value


def _of_tfds(rows: list[dict[str, Any]], location: str, allow_empty: bool) -> Iterator[SpanExample]:
    for number, row in enumerate(rows):
        starts, texts = row["answers"]["answer_start"].tolist(), row["answers"]["text"]
        answers = tuple((start, text.decode()) for start, text in zip(starts, texts, strict=True))
        decoded = {key: row[key].decode() for key in ("question", "context", "id")}
        try:
            question, context, name = (
                _text(decoded, key, f"row {number}", allow_empty and key != "id") for key in decoded
            )
        except ValueError as error:
            raise InputError(f"{location}: {error}.") from None
        yield _example(question, context, name, answers, bool(row.get("is_impossible", False)))


def _example(
    question: str,
    context: str,
    name: str,
    answers: tuple[tuple[int, str], ...],
    is_impossible: bool,
) -> SpanExample:
    return SpanExample(question, context, name, () if is_impossible else answers, is_impossible)
