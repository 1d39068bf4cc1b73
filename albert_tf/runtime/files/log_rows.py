"""The rows that a run appends to its logs, one JSON object per line."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from albert_tf.runtime.errors import InputError, reading
from albert_tf.runtime.files.json_text import json_object
from albert_tf.runtime.files.paths import require_file


def metrics_in(path: str, *names: str) -> list[dict[str, float]]:
    """Return the rows of a metrics.jsonl, none if there is no file.

    Args:
      path: the file.
      *names: the metrics that each row must have; with any, there must be a row.

    Raises:
      InputError: a line is not a JSON object of numbers with `step`, or a metric is missing.
    """
    rows = _rows(path)
    is_intact = all(has_numbers(row, ("step", *names, *row)) for row in rows)
    if not is_intact or (names and not rows):
        raise InputError(
            f"{path!r} must have a line of numbers, with {', '.join(('step', *names))}, for each "
            "part of the training. Restore the file, or train in another --run_dir."
        )
    return rows


def skipped_in(path: str) -> list[dict[str, Any]]:
    """Return the rows of a skipped.jsonl, none if there is no file.

    Raises:
      InputError: a line is not a JSON object with the numbers `restores` and `step`.
    """
    rows, names = _rows(path), ("restores", "step")
    if not all(has_numbers(row, names) for row in rows):
        raise InputError(
            f"{path!r} must have {' and '.join(names)} in each line. Restore the file, or remove "
            "it."
        )
    return rows


def has_numbers(values: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Return True if the value of each name is a number; JSON's integers have no bounds."""
    entries = [values.get(name) for name in names]
    return all(isinstance(n, float) or (type(n) is int and abs(n) < 2**63) for n in entries)


def _rows(path: str) -> list[dict[str, Any]]:
    """Return the objects in the lines of a log, which may have NaN, without an incomplete last one.

    Raises:
      InputError: a line is not a JSON object, or there is something else than a file.
    """
    if not os.path.exists(path):
        return []
    require_file(path, "")
    with reading(path), open(path, "rb") as file:
        lines = [line for line in file if line.endswith(b"\n")]
    return [json_object(line, f"{path}:{n}", allow_nan=True) for n, line in enumerate(lines, 1)]
