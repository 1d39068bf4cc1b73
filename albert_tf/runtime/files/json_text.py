"""JSON as its standard has it: Python's module also reads NaN and what no file can hold."""

import json
import re
from typing import Any

from albert_tf.runtime.errors import InputError, shortened

_MAYBE_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # escapes of halves, or of whole pairs
_MAX_DIGITS = 308  # of an integer that is a float too


def parse_json(
    content: str | bytes, where: str, allow_nan: bool = False, errors: str | None = None
) -> Any:
    """Return the value of a JSON text.

    Args:
      content: the text, or its bytes in an encoding of Unicode.
      where: the file, with the line if the text is a line, for error messages.
      allow_nan: accept NaN and Infinity, which results of a diverged run may contain.
      errors: the value of --errors; `replace` replaces half surrogate pairs with `?`. None if the
        command has no such flag.

    Raises:
      InputError: the text is not JSON or not Unicode, or has NaN, Infinity, a number that no float
        can hold, or half a surrogate pair.
    """
    try:
        if isinstance(content, bytes):
            content = content.decode(json.detect_encoding(content))
        value = (_WITH_NAN if allow_nan else _DECODER).decode(content)
        if _MAYBE_HALF.search(content):
            value = _whole(value, errors)
    except (ValueError, RecursionError) as error:  # also for long integers and deep nesting
        raise InputError(f"{where} must be JSON: {error}. Received: {content[:80]!r}.") from None
    return value


def json_object(content: str | bytes, where: str, allow_nan: bool = False) -> dict[str, Any]:
    """Return the object of a JSON text, as `parse_json` does.

    Raises:
      InputError: the text is not a JSON object.
    """
    values = parse_json(content, where, allow_nan)
    if not isinstance(values, dict):
        raise InputError(f"{where} must contain a JSON object. Received: {shortened(values)}.")
    return values


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value; leave it out")


def _float(digits: str) -> float:
    value = float(digits)
    if abs(value) == float("inf"):
        raise ValueError(f"{digits} is too large for a float")
    return value


def _integer(digits: str) -> int:
    size = len(digits.lstrip("-"))
    if size > _MAX_DIGITS:
        raise ValueError(f"an integer of {size} digits is too large for a float")
    return int(digits)


def _whole(value: Any, errors: str | None) -> Any:
    """Return a value without half surrogate pairs.

    Raises:
      ValueError: it has one, which is not to be replaced.
    """
    text = json.dumps(value, ensure_ascii=False)
    if errors == "replace":
        return json.loads(text.encode("utf-8", "replace"))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        advice = ", or pass --errors=replace" if errors else ""
        raise ValueError(
            f"{half} is half a surrogate pair; write the whole character{advice}"
        ) from None
    return value


_DECODER = json.JSONDecoder(parse_constant=_refused, parse_float=_float, parse_int=_integer)
_WITH_NAN = json.JSONDecoder(parse_int=_integer)
