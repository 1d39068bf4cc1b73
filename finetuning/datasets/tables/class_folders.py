"""Parts of a dataset with a folder of texts for each class, such as `train/pos/*.txt`."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from albert_tf.runtime.errors import InputError, reading
from albert_tf.runtime.files.compression import format_of
from albert_tf.runtime.files.paths import require_utf8
from albert_tf.runtime.files.text_files import text_of
from finetuning.datasets.tables.part_files import names_of, only
from finetuning.datasets.tables.table_files import Table

_UNLABELED = "unsup"  # of aclImdb


def open_classes(data_dir: str, part: str, allow_empty: bool) -> Table | None:
    """Return a part as a table with the columns `text`, `label` and `id`.

    The text is that of a .txt file, perhaps compressed, without white space at its ends; the label
    is the name of the file's folder, and the id `folder/file`. A note says that texts in `unsup`
    are left out.

    Args:
      data_dir: the folder that has one for the part.
      part: the part.
      allow_empty: accept files without a visible character.

    Returns:
      The table, whose files are read in the order of their paths when its rows are; None if there
      are fewer than two classes.

    Raises:
      InputError: there are several folders of the part, or the name of a file is not UTF-8.
      MachineError: a folder cannot be read.
    """
    parts = {path: _texts_of(path) for path in [os.path.join(data_dir, n) for n in names_of(part)]}
    unlabeled = {path: texts.pop(_UNLABELED, []) for path, texts in parts.items()}
    if not (folders := [path for path, texts in parts.items() if len(texts) > 1]):
        return None
    folder = only(folders)
    if unlabeled[folder]:
        print(
            f"note: {os.path.join(folder, _UNLABELED)}: {len(unlabeled[folder]):,} texts without "
            "labels are left out.",
            file=sys.stderr,
        )
    return Table(
        folder,
        ("text", "label", "id"),
        _records(parts[folder], allow_empty),
        remedy="Of a folder for each class, these are the columns: leave out --text_column and "
        "--label_column.",
    )


def _texts_of(folder: str) -> dict[str, list[str]]:
    """Return the paths of the .txt files in the folders inside a folder, in order, by class."""
    texts: dict[str, list[str]] = {}
    labels = [os.path.join(folder, name) for name in _names_in(folder)]
    for path in sorted(os.path.join(label, name) for label in labels for name in _names_in(label)):
        if format_of(path) == ".txt":
            require_utf8(path, "--data_dir")
            texts.setdefault(os.path.basename(os.path.dirname(path)), []).append(path)
    return texts


def _names_in(folder: str) -> list[str]:
    """Return the names in a folder that are not hidden; none if it is no folder."""
    with reading(os.path.join(folder, "")):
        try:
            return [name for name in os.listdir(folder) if not name.startswith(".")]
        except (FileNotFoundError, NotADirectoryError):
            return []


def _records(
    texts: Mapping[str, Sequence[str]], allow_empty: bool
) -> Iterator[tuple[str, list[Any]]]:
    for label, paths in texts.items():
        for path in paths:
            text = text_of(path).strip()
            if not (text or allow_empty):
                raise InputError(f"{path} is empty. Write its text in it, or remove the file.")
            yield path, [text, label, f"{label}/{os.path.basename(path)}"]
