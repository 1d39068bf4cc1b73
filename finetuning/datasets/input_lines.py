"""The lines of `finetuning.predict --input`: texts, pairs of texts or JSON objects."""

import itertools
import re
import string
from collections.abc import Iterator, Sequence
from typing import Any

from albert_tf.runtime.compression import format_of
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.json_text import parse_json
from albert_tf.runtime.paths import require_file
from albert_tf.runtime.text_files import lines_of
from albert_tf.tasks.examples import ChoiceExample, SpanExample, TextExample, TokenExample
from albert_tf.tasks.kinds import KINDS
from finetuning.datasets.token_files import text_key_of

_BLANKS = string.whitespace + "\ufeff\u200b"
_DATA = re.compile(  # of JSON or Python
    r"\[?\s*\{.*"  # begins as an object or a list of objects
    r'|"\w+"\s*:.*'  # begins within an object
    r"|\[\s*['\"].*['\"]\s*\],?"  # is a list of texts
    r"|[\[\]{},\s]*[\[\]{}][\[\]{},\s]*",  # has only brackets
    re.DOTALL,
)


def input_lines(path: str, columns: Sequence[str] = ()) -> Iterator[tuple[int, str]]:
    """Return the numbered lines of --input, which is no table; `columns` are the run's own."""
    if path != "-":
        require_file(path, "--input", "Pass --input=- and pipe the examples to stdin.")
    lines = lines_of(path, "--input")
    is_table = format_of(path) == ".csv"
    if format_of(path) == ".tsv":  # may hold pairs, without a header
        first = list(itertools.islice(lines, 1))
        cells = {cell for _, line in first for cell in line.rstrip("\r\n").split("\t")}
        is_table = not cells.isdisjoint(("text", "text_a", "label", *columns))
        lines = itertools.chain(first, lines)
    if is_table:  # its header and labels would be read as texts
        raise InputError(
            f"--input must hold a text or a JSON object per line. Received: {path!r}, a table. For "
            "a table, pass its folder as --data_dir and its name without the extension as --part."
        )
    return lines


def id_of(line: str, path: str) -> Any:
    """Return the id in a line, None if it has none."""
    row = _object(line, path)
    return row.get("id") if row else None


def _object(line: str, path: str) -> dict[str, Any] | None:
    """Return the JSON object in a line, None for a text.

    Raises:
      ValueError: the line looks like data of JSON or Python, but is not an object.
    """
    line, value, why = line.strip(_BLANKS), None, ""
    if line.startswith(("{", "[")):
        try:
            value = parse_json(line.removesuffix(","), path)
        except InputError as error:
            reason = str(error).partition(" must be JSON: ")[2].partition(". Received:")[0]
            why = f" ({reason})" if line.endswith("}") else ""
    if isinstance(value, dict) and not line.endswith(","):
        return value
    if value is not None or _DATA.fullmatch(line):
        raise ValueError(
            "the line looks like JSON or Python data, but is not a complete and valid JSON object"
            f"{why}. "
            'Put a text that looks so into one, such as {"text": "[1, 2]"}'
        )
    return None


def example_of(line: str, task: Any, path: str, number: int, columns: Sequence[str] = ()) -> Any:
    """Return the example in a line; `columns` are the run's own names of the texts.

    Raises:
      InputError: the line is not a valid example; the message gives its number.
    """
    line = line.rstrip("\r\n")
    try:
        row = _object(line, path)
        return (
            _from_json(row, task, columns)
            if row is not None
            else _from_cells(line.split("\t"), task)
        )
    except ValueError as error:
        problem = f"{error}. " if str(error) else ""
        raise InputError(
            f"--input={path}:{number}: {problem}{_expected_line(task)} Received: {line[:80]!r}."
        ) from None


def _from_cells(cells: list[str], task: Any) -> TextExample | TokenExample:
    if task.kind == "token_classifier":
        return TokenExample("\t".join(cells))
    if not _takes_texts(task) or len(cells) != 1 + task.pair:
        raise ValueError
    return TextExample(cells[0], cells[1] if task.pair else None)


def _from_json(row: dict[str, Any], task: Any, columns: Sequence[str]) -> Any:
    if _takes_texts(task):
        names: Sequence[str] = ("text_a", "text_b") if task.pair else ("text",)
        if columns and columns[0] in row:
            names = columns
        texts = [_text(row, name) for name in names]
        return TextExample(texts[0], texts[1] if task.pair else None)
    if task.kind == "token_classifier":
        return TokenExample(_text(row, text_key_of(columns)))
    question = _text(row, "question")
    if task.kind == "span":
        context = _text(row, "context")
        return SpanExample(question, context)
    context, options = _text({"context": ""} | row, "context"), row.get("options")
    if not isinstance(options, list) or len(options) < 2:
        raise ValueError("options must be a list of at least two texts")
    return ChoiceExample(question, context, tuple(_text({"option": o}, "option") for o in options))


def _takes_texts(task: Any) -> bool:
    return KINDS[task.kind].example is TextExample


def _text(row: dict[str, Any], name: str) -> str:
    text = row.get(name)
    if not isinstance(text, str):
        raise ValueError(f"the key `{name}` must hold a text")
    return text


def _expected_line(task: Any) -> str:
    """Return a description of a valid line for the run's kind."""
    if task.kind == "span":
        return "A line must be a JSON object with question and context."
    if task.kind == "multiple_choice":
        return "A line must be a JSON object with question, options and, if any, context."
    if getattr(task, "pair", False):
        return "A line must be two texts separated by a tab, or a JSON object."
    tabs = "" if task.kind == "token_classifier" else " without tabs"
    return f"A line must be a text{tabs}, or a JSON object with the key text."
