"""An index: the folder of index.json, its settings, and of one or more parts."""

import os
import re
from typing import NamedTuple

from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.runtime.files import outputs
from finetuning.searching.part_files import (
    IndexedFile,
    IndexPart,
    damaged_index,
    read_checked,
    with_digest,
)
from finetuning.searching.passages import Passage

SETTINGS = "index.json"
_PART = re.compile(r"part-\d{4,}")
_SCHEMA = 5


class IndexSettings(NamedTuple):
    """What all parts of an index share.

    Attributes:
      model: the name or the absolute path of the model of the vectors.
      fingerprint: a name that changes with its weights, its tokenizer and its settings.
      width: D, the width of the vectors.
      max_words: the most words of a passage.
    """

    model: str
    fingerprint: str
    width: int
    max_words: int

    def write(self, folder: str) -> None:
        """Write index.json."""
        values = {"schema": _SCHEMA, **self._asdict()}
        outputs.write_json(os.path.join(folder, SETTINGS), with_digest(values))


class SearchIndex:
    """An index on disk, whose arrays stay in their files.

    Attributes:
      path: the folder.
      settings: what all parts share.
      parts: the parts, in the order of indexing; the rows of passages follow each other.
        Passages of files that were changed or removed since are not in them.

    Raises:
      InputNotFoundError: there is no index at `path`.
      InputError: the index is damaged.
    """

    def __init__(self, path: str) -> None:
        if not is_index(path):
            raise InputNotFoundError(
                f"--index must be a folder that `search index` has written. Received: {path!r}, "
                f"without {SETTINGS} (working directory {os.getcwd()}). Build it with `index "
                f"--output={path}`."
            )
        self.path = path
        damaged = damaged_index(path)
        values = read_checked(os.path.join(path, SETTINGS), damaged)
        if values.get("schema") != _SCHEMA:
            raise InputError(
                f"--index={path} was written by another version: it has schema "
                f"{values.get('schema')!r}, and this version reads {_SCHEMA}. Build a new one."
            )
        self.settings = IndexSettings(**{name: values[name] for name in IndexSettings._fields})
        present = {name for name in os.listdir(path) if _PART.fullmatch(name)}
        names = [part_name(number) for number in range(max(1, len(present)))]
        if missing := sorted(set(names) - present):
            raise damaged(f"no {missing[0]}")
        self.parts: list[IndexPart] = []
        dropped: set[str] = set()
        for name in reversed(names):
            self.parts.insert(0, IndexPart(os.path.join(path, name), dropped))
            dropped |= {*self.parts[0].origin.dropped}

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def files(self) -> list[IndexedFile]:
        """The files of the corpus."""
        return [file for part in self.parts for file in part.origin.files]

    def passage(self, row: int) -> Passage:
        """Return the passage of a row."""
        for part in self.parts:
            if row < len(part):
                return part.passage(row)
            row -= len(part)
        raise IndexError(row)

    def require_settings(self, settings: IndexSettings) -> None:
        """Check that vectors with these settings may be added.

        Raises:
          InputError: they are of another model, or the passages have another length.
        """
        require_model(self, settings.fingerprint, settings.model)
        if settings.max_words != self.settings.max_words:
            raise InputError(
                f"--max_words must be that of the index, {self.settings.max_words}. Received: "
                f"{settings.max_words}. Pass the same, or another --output."
            )


def is_index(path: str) -> bool:
    """Return True if there is an index at a path."""
    return os.path.isfile(os.path.join(path, SETTINGS))


def require_model(index: SearchIndex, fingerprint: str, model: str) -> None:
    """Check that a model is that of the vectors in an index.

    Raises:
      InputError: it is another one, or was trained further.
    """
    settings = index.settings
    if fingerprint != settings.fingerprint:
        raise InputError(
            f"--model must be the model of the vectors in {index.path!r}, {settings.model!r} with "
            f"fingerprint {settings.fingerprint}. Received: {model!r} with {fingerprint}. Pass "
            "that model, or build a new index."
        )


def part_name(number: int) -> str:
    """Return the name of a part's folder."""
    return f"part-{number:04d}"


def shown_path(path: str) -> str:
    """Return a path relative to the working directory, if it is below it."""
    try:
        relative = os.path.relpath(path) if os.path.isabs(path) else path
    except FileNotFoundError:  # the working directory was removed
        return path
    return path if relative.startswith("..") else relative
