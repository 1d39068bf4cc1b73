"""JSON as people's tools write it: values, and lines with one each."""

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from albert_tf.runtime.json_text import parse_json

_PRODIGY = ("_input_hash", "_task_hash")  # keys of its lines


def json_lines(path: str, lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str, Any]]:
    """Yield the number, the text and the value of each line of JSON that is not blank.

    Leave out the lines that an annotator rejected or ignored in Prodigy, and print their number.

    Args:
      path: the file.
      lines: its numbered lines.

    Raises:
      InputError: a line is not JSON.
    """
    rejected = []
    for number, line in lines:
        if not line.strip():
            continue
        value = parse_json(line, f"{path}:{number}")
        if _is_rejected(value):
            rejected.append(number)
        else:
            yield number, line, value
    if rejected:
        print(
            f"note: {path}: {len(rejected):,} lines of Prodigy whose `answer` is reject or ignore "
            f"are left out, the first at line {rejected[0]}.",
            file=sys.stderr,
        )


def _is_rejected(value: Any) -> bool:
    is_of_prodigy = isinstance(value, dict) and any(key in value for key in _PRODIGY)
    return is_of_prodigy and value.get("answer") in ("reject", "ignore")


def as_text(value: Any) -> Any:
    """Return a number or Boolean of JSON as the text that it was; other values as they are."""
    return json.dumps(value) if isinstance(value, int | float) else value
