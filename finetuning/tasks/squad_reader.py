"""SQuAD's files: JSON, plain or .gz, or the data sets that TFDS has prepared."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from albert_tf.errors import InputError
from albert_tf.tasks.examples import SpanExample
from finetuning.tables import find, lines_of, parse_json, tfds_rows
from finetuning.task import Source

_LAYOUT = (
    "SQuAD's layout, data[].paragraphs[] of context and qas[] of id, question and answers[] of "
    "text and answer_start"
)


def read_part(source: Source, part: str, version: str) -> tuple[str, list[SpanExample]]:
    """The file or data set, and its examples, whose answers may be missing or out of place.

    Raises:
      InputError: no such layout, an empty text, two questions with one id.
    """
    if source.tfds:
        name, split = f"squad/v{version}", part.replace("dev", "validation")
        place = f"{name}:{split}"
        examples = list(_of_tfds(tfds_rows(name, source.data_dir, split)[1], place))
    else:
        place = find(source.data_dir or "", [f"{part}-v{version}.json", f"{part}.json"])
        examples = list(questions_of(place))
    ids = Counter(example.id for example in examples)
    if not examples:
        raise InputError(f"{place} holds no questions.")
    if len(ids) < len(examples):
        (first, count), *_ = ids.most_common(1)
        raise InputError(
            f"{place}: every question must have an id of its own. Received: {count} with {first!r}."
        )
    return place, examples


def require_version(place: str, examples: list[SpanExample], version: str) -> None:
    """InputError: of version 1.1, a question that says that it has no answer."""
    for example in examples:
        if example.is_impossible and version == "1.1":
            raise InputError(
                f"{place}, question {example.id!r}: `is_impossible`, which --task=squad1 does not "
                "know. Take --task=squad2, or remove the question."
            )


def require_answers(place: str, examples: list[SpanExample], version: str) -> None:
    """InputError: a question without an answer, unless version 2.0 says that it has none."""
    require_version(place, examples, version)
    for example in examples:
        if not (example.answers or example.is_impossible):
            raise InputError(
                f"{place}, question {example.id!r}: must have an answer here. Add it, or remove "
                "the question."
            )


def in_place(place: str, examples: list[SpanExample]) -> list[SpanExample]:
    """The examples whose answer stands where `answer_start` says; prints how many others there are.

    Raises:
      InputError: no answer stands there.
    """
    kept = [example for example in examples if _stands(example)]
    wrong = [example.id for example in examples if not _stands(example)]
    if wrong and not any(example.answers for example in kept):
        raise InputError(
            f"{place}, question {wrong[0]!r}: `answer_start` must count the characters of the "
            "context before the answer, and no answer of the file stands there. Bytes were counted?"
        )
    skipped = f", {len(wrong):,} left out: their answer is not at its answer_start" if wrong else ""
    first = f" (the first: {wrong[0]!r})" if wrong else ""
    print(f"{place}: {len(examples):,} questions{skipped}{first}")
    return kept


def _stands(example: SpanExample) -> bool:
    return all(
        start >= 0 and example.context.startswith(text, start)
        for start, text in example.answers[:1]
    )


def questions_of(path: str) -> Iterator[SpanExample]:
    """The questions of a JSON file, plain or .gz. Raises: InputError, as `read_part`."""
    content = parse_json("".join(line for _, line in lines_of(path)), path)
    place = "the top"
    try:
        for i, article in enumerate(content["data"]):
            for j, paragraph in enumerate(article["paragraphs"]):
                place = f"data[{i}].paragraphs[{j}]"
                for k, question in enumerate(paragraph["qas"]):
                    place = f"data[{i}].paragraphs[{j}].qas[{k}]"
                    answers = [
                        (each["answer_start"], each["text"]) for each in question.get("answers", [])
                    ]
                    impossible = bool(question.get("is_impossible", False))
                    yield _example(
                        question["id"],
                        question["question"],
                        paragraph["context"],
                        answers,
                        impossible,
                    )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"{path}: must be in {_LAYOUT}. Received: at {place}, {type(error).__name__} {error}."
        ) from None


def _of_tfds(rows: list[dict[str, Any]], place: str) -> Iterator[SpanExample]:
    for row in rows:
        starts, texts = row["answers"]["answer_start"].tolist(), row["answers"]["text"]
        answers = [(start, text.decode()) for start, text in zip(starts, texts, strict=True)]
        name, question, context = (row[key].decode() for key in ("id", "question", "context"))
        try:
            yield _example(name, question, context, answers, bool(row.get("is_impossible", False)))
        except ValueError as error:
            raise InputError(f"{place}: {error}.") from None


def _example(
    name: str, question: str, context: str, answers: list[tuple[int, str]], is_impossible: bool
) -> SpanExample:
    """ValueError: an empty text; TypeError: a text or a place that is none."""
    for key, text in (("id", name), ("question", question), ("context", context)):
        if not isinstance(text, str):
            raise TypeError(f"`{key}` {text!r}")
        if not text.strip():
            raise ValueError(f"`{key}` is empty, question {name!r}")
    for start, text in answers:
        if type(start) is not int or not isinstance(text, str):
            raise TypeError(f"an answer {text!r} at {start!r}")
    return SpanExample(
        _whole(question),
        _whole(context),
        _whole(name),
        () if is_impossible else tuple((start, _whole(text)) for start, text in answers),
        is_impossible,
    )


def _whole(text: str) -> str:
    """Of as many characters: JSON can escape half a surrogate pair, which no file takes."""
    return text.encode("utf-8", "replace").decode("utf-8")
