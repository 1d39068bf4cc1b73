"""JSON as people's tools write it: values, and lines with one each."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from albert_tf.runtime.files.json_text import parse_json


def json_lines(path: str, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str, Any]]:
    """Yield the number, the text and the value of each line of JSON that is not blank.

    Args:
      path: the file.
      lines: its numbered lines.

    Raises:
      InputError: a line is not JSON.
    """
    for number, line in lines:
        if line.strip():
            yield number, line, parse_json(line, f"{path}:{number}")


def as_text(value: Any) -> Any:
    """Return a number or Boolean of JSON as the text that it was; other values as they are."""
    return json.dumps(value) if isinstance(value, int | float) else value
