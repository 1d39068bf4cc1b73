"""JSON as people's tools write it: values, and lines with one each."""

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

from albert_tf.runtime.errors import InputError


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
    """Return a number or Boolean of JSON as the text that it was; other values as they are.

    Numbers that are too large for a float, such as 1e999, count as null, as NaN does.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return json.dumps(value) if isinstance(value, int | float) else value


def parse_json(text: str, location: str) -> Any:
    """Return the value of a JSON text, in which NaN and Infinity count as null.

    Raises:
      InputError: the text is not JSON.
    """
    try:
        value = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:  # also for long integers and deep nesting
        raise InputError(f"{location} must be JSON: {error}. Received: {text[:80]!r}.") from None
    if "\\ud" in text.lower():  # may be half a surrogate pair, which no tokenizer accepts
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return value
