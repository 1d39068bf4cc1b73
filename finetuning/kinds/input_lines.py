"""The lines of `finetuning.predict --input`: texts, pairs of texts or JSON objects."""

import itertools
import re
import string
from collections.abc import Iterator, Sequence
from typing import Any

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files.compression import format_of
from albert_tf.runtime.files.json_text import parse_json
from albert_tf.runtime.files.paths import require_file
from albert_tf.runtime.files.text_files import lines_of
from albert_tf.tasks.task_settings import TaskSettings
from finetuning.kinds.registry import FINETUNING

_PAIRS = {  # the names of their columns in public data
    *(("sentence1", "sentence2"), ("question1", "question2"), ("premise", "hypothesis")),
    *(
        ("question", "sentence"),
        ("query", "passage"),
        ("query", "positive"),
        ("query", "candidate"),
    ),
    *(("anchor", "positive"), ("question", "context")),
}
_BLANKS = string.whitespace + "\ufeff\u200b"
_DATA = re.compile(  # of JSON or Python
    r"\[?\s*\{.*"  # begins as an object or a list of objects
    r'|"\w+"\s*:.*'  # begins within an object
    r"|\[\s*(\".*|'.*'\s*\],?)"  # begins as a list of texts in JSON, or is one in Python
    r"|(?=[,\s]*[\[\]{}])[\[\]{},\s]*",  # has only brackets
    re.DOTALL,
)


def input_lines(path: str, columns: Sequence[str] = ()) -> Iterator[tuple[int, str]]:
    """Return the numbered lines of --input, which is no table; `columns` are the run's own."""
    if path != "-":
        require_file(path, "--input", "Pass --input=- and pipe the examples to stdin.")
    lines = lines_of(path, "--input")
    kind = format_of(path)
    is_table = kind in (".csv", ".parquet", ".arrow")
    if kind in (".tsv", ".json"):  # may hold pairs without a header, or an object per line
        first = list(itertools.islice(lines, 1))
        line = first[0][1].strip(_BLANKS) if first else ""
        cells = line.split("\t")
        is_header = not {"text", "text_a", "label", *columns}.isdisjoint(cells)
        is_header |= tuple(cells[:2]) in _PAIRS
        is_table = is_header if kind == ".tsv" else line.startswith("[")
        lines = itertools.chain(first, lines)
    if is_table:  # its header and labels would be read as texts
        raise InputError(
            f"--input must hold a text or a JSON object per line. Received: {path!r}, a table. For "
            "a table, pass its folder as --data_dir and its name without the extension as --part."
        )
    return lines


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


def read_line(
    line: str, task: TaskSettings, path: str, number: int, columns: Sequence[str] = ()
) -> tuple[Any, Any]:
    """Return the example in a line for a run with the section `task`, and its id, if any.

    `columns` are the run's own names of the texts.

    Raises:
      InputError: the line is not a valid example; the message gives its number.
    """
    line, kind = line.rstrip("\r\n"), FINETUNING[task.kind]
    try:
        if (row := _object(line, path)) is not None:
            return kind.of_json(row, task, columns), row.get("id")
        return kind.of_cells(line.split("\t"), task), None
    except ValueError as error:
        problem = f"{error}. " if str(error) else ""
        raise InputError(
            f"--input={path}:{number}: {problem}{kind.expected_line(task)} Received: {line[:80]!r}."
        ) from None
