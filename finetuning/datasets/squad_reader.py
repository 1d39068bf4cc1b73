"""SQuAD's files, and CMRC 2018's: JSON, plain or .gz; or the data sets that TFDS has prepared."""

import reprlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.examples import SpanExample
from finetuning.datasets.table_files import find, lines_of, parse_json, tfds_rows
from finetuning.datasets.task import Source

_SQUAD = (
    "SQuAD's layout, data[].paragraphs[] of context and qas[] of id, question and answers[] of "
    "text and answer_start"
)
_CMRC = (
    "CMRC's layout, a list of context_text and qas[] of query_id, query_text and answers[], which "
    "are texts; a file that is no list in SQuAD's"
)


def read_part(source: Source, part: str, version: str) -> tuple[str, list[SpanExample]]:
    """The file or data set, and its examples, whose answers may be missing or out of place.

    Raises:
      InputError: no such layout, an empty text, two questions with one id.
    """
    if source.tfds:
        name, split = f"squad/v{version}", part.replace("dev", "validation")
        location = f"{name}:{split}"
        examples = list(_of_tfds(tfds_rows(name, source.data_dir, split)[1], location))
    else:
        location = find(source.data_dir or "", [f"{part}-v{version}.json", f"{part}.json"])
        examples = list(questions_of(location))
    ids = Counter(example.id for example in examples)
    if not examples:
        raise InputError(f"{location} holds no questions.")
    if len(ids) < len(examples):
        (first, count), *_ = ids.most_common(1)
        raise InputError(
            f"{location}: every question must have an id of its own. Received: {count} with "
            f"{first!r}."
        )
    return location, examples


def require_version(location: str, examples: list[SpanExample], version: str) -> None:
    """InputError: of version 1.1, a question that says that it has no answer."""
    for example in examples:
        if example.is_impossible and version == "1.1":
            raise InputError(
                f"{location}, question {example.id!r}: `is_impossible`, which --task=squad1 does "
                "not know. Take --task=squad2, or remove the question."
            )


def require_answers(location: str, examples: list[SpanExample], version: str) -> None:
    """InputError: a question without an answer, unless version 2.0 says that it has none."""
    require_version(location, examples, version)
    for example in examples:
        if not (example.answers or example.is_impossible):
            raise InputError(
                f"{location}, question {example.id!r}: must have an answer here. Add it, or remove "
                "the question."
            )


def drop_misplaced(location: str, examples: list[SpanExample]) -> list[SpanExample]:
    """The examples whose answer stands where it should; prints how many others there are.

    Raises:
      InputError: no answer stands there.
    """
    kept = [example for example in examples if _is_at_offset(example)]
    wrong = [example.id for example in examples if not _is_at_offset(example)]
    if wrong and not any(example.answers for example in kept):
        raise InputError(
            f"{location}, question {wrong[0]!r}: its answer must stand in the context, in SQuAD's "
            "layout behind `answer_start` characters, and no answer of the file does. Bytes were "
            "counted?"
        )
    skipped = (
        f", {len(wrong):,} left out: their answer is not there in the context" if wrong else ""
    )
    first = f" (the first: {wrong[0]!r})" if wrong else ""
    impossible = sum(example.is_impossible for example in examples)
    unanswered = f", {impossible:,} of them without an answer" if impossible else ""
    print(f"{location}: {len(examples):,} questions{unanswered}{skipped}{first}")
    return kept


def _is_at_offset(example: SpanExample) -> bool:
    return all(
        start >= 0 and example.context.startswith(text, start)
        for start, text in example.answers[:1]
    )


def questions_of(path: str) -> Iterator[SpanExample]:
    """The questions of a JSON file, plain or .gz, in SQuAD's layout or, if it is a list, in CMRC's.

    Raises:
      InputError: as `read_part`.
    """
    content = parse_json("".join(line for _, line in lines_of(path)), path)
    layout, read = (_CMRC, _of_cmrc) if isinstance(content, list) else (_SQUAD, _of_squad)
    try:
        yield from read(content)
    except ValueError as error:
        raise InputError(f"{path}: must be in {layout}. Received: {error}.") from None


def _of_squad(content: Any) -> Iterator[SpanExample]:
    """Each question; ValueError: the value that does not fit, and its place."""
    for at_article, article in _items(content, "data", ""):
        for at_paragraph, paragraph in _items(article, "paragraphs", at_article):
            context = _text(paragraph, "context", at_paragraph)
            for location, row in _items(paragraph, "qas", at_paragraph):
                answers = tuple(
                    (_get(answer, "answer_start", int, at), _get(answer, "text", str, at))
                    for at, answer in _items(row, "answers", location, [])
                )
                question, name = _text(row, "question", location), _text(row, "id", location)
                is_impossible = bool(row.get("is_impossible", False))
                yield _example(question, context, name, answers, is_impossible)


def _of_cmrc(content: Any) -> Iterator[SpanExample]:
    """As `_of_squad`. An answer is at its first occurrence in the context, or at -1."""
    for i, passage in enumerate(content):
        context = _text(passage, "context_text", f"[{i}]")
        for location, row in _items(passage, "qas", f"[{i}]"):
            texts = [answer for _, answer in _items(row, "answers", location, [])]
            if wrong := [text for text in texts if not isinstance(text, str)]:
                raise ValueError(f"an answer {wrong[0]!r} at {location}")
            answers = tuple((context.find(_replace_surrogates(text)), text) for text in texts)
            question, name = _text(row, "query_text", location), _text(row, "query_id", location)
            yield _example(question, context, name, answers, False)


def _items(record: Any, key: str, location: str, default: Any = None) -> Iterator[tuple[str, Any]]:
    """The place and the value of each item of the list under a key; ValueError: there is none."""
    for i, item in enumerate(_get(record, key, list, location, default)):
        yield f"{location}.{key}[{i}]".lstrip("."), item


def _text(record: Any, key: str, location: str) -> str:
    """The text under a key; ValueError: there is none, or it is empty."""
    text = _get(record, key, str, location)
    if not text.strip():
        raise ValueError(f"`{key}` is empty at {location}")
    return _replace_surrogates(text)


def _get(record: Any, key: str, kind: type, location: str, default: Any = None) -> Any:
    """The value under a key; ValueError: no object, no such key, or a value of another type."""
    location = location or "the top"
    if not isinstance(record, dict):
        raise ValueError(f"{reprlib.repr(record)} at {location}")
    if key not in record and default is None:
        raise ValueError(f"no `{key}` at {location}")
    value = record.get(key, default)
    if type(value) is not kind:  # true and false are no numbers here
        raise ValueError(f"`{key}` {reprlib.repr(value)} at {location}")
    return value


def _of_tfds(rows: list[dict[str, Any]], location: str) -> Iterator[SpanExample]:
    for number, row in enumerate(rows):
        starts, texts = row["answers"]["answer_start"].tolist(), row["answers"]["text"]
        answers = tuple((start, text.decode()) for start, text in zip(starts, texts, strict=True))
        decoded = {key: row[key].decode() for key in ("question", "context", "id")}
        try:
            question, context, name = (_text(decoded, key, f"row {number}") for key in decoded)
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
    kept = (
        ()
        if is_impossible
        else tuple((start, _replace_surrogates(text)) for start, text in answers)
    )
    return SpanExample(question, context, name, kept, is_impossible)


def _replace_surrogates(text: str) -> str:
    """Of as many characters: JSON can escape half a surrogate pair, which no file takes."""
    return text.encode("utf-8", "replace").decode("utf-8")
