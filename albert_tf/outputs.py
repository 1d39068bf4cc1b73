"""Outputs appear under their final name only when they are complete."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from typing import Any

from albert_tf.errors import InputError

SUFFIX = ".incomplete"


@contextlib.contextmanager
def new_folder(path: str, flag: str = "--output") -> Iterator[str]:
    """Yields a folder beside `path` to write into; it takes the name `path` when the block ends.

    Where the block raises, nothing is left. What a killed process left is cleared by the next.

    Raises:
      InputError: `path` exists and is not an empty folder, or cannot be written.
    """
    require_new(path, flag)
    final = os.path.realpath(path)
    work = final + SUFFIX
    shutil.rmtree(work, ignore_errors=True)
    parents = _missing_parents(final)
    try:
        try:
            os.makedirs(work)
        except OSError as error:
            raise InputError(
                f"{flag}={path} cannot be written: {error.strerror}. Name another folder."
            ) from None
        yield work
        if os.path.isdir(final):
            os.rmdir(final)
        os.replace(work, final)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        for parent in parents:
            if os.path.isdir(parent) and not os.listdir(parent):
                os.rmdir(parent)


def _missing_parents(path: str) -> list[str]:
    """The folders above `path` that do not exist yet, the deepest first."""
    missing = []
    while not os.path.lexists(path := os.path.dirname(path)):
        missing.append(path)
    return missing


def require_new(path: str, flag: str = "--output") -> None:
    """Refuses a path that exists, unless it is an empty folder."""
    if os.path.isdir(path) and not os.listdir(path):
        return
    if os.path.lexists(path):
        raise InputError(
            f"{flag} must name a new or empty folder. Received: {path!r}, which exists and was not "
            "made by the same command: name another or remove it."
        )


def write_json(path: str, values: Any) -> None:
    """Writes JSON that is either the whole new content or the old one, never a part."""
    with open(path + SUFFIX, "w", encoding="utf-8") as file:
        json.dump(values, file, indent=1)
        file.write("\n")
    os.replace(path + SUFFIX, path)
