"""Layouts of labeled tokens that are not read: their files are recognized, with what to do."""

import contextlib
import glob
import os
import re
from collections.abc import Sequence

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files.compression import format_of
from albert_tf.runtime.files.text_files import files_of

# Such as (TOP(S(NP* or (PERSON*), and the numbers of coreference, (3) or (3.
_BRACKETS = re.compile(r"\([A-Z_]\S*\*\)*|\(\d+\)?|\d+\)")
_KAGGLE = "Sentence #"  # the name of its first column


def require_columns(path: str, lines: Sequence[str]) -> None:
    """Check the first lines of a file that should have CoNLL columns.

    Raises:
      InputError: they are CoNLL-2012's or Kaggle's.
    """
    if any(map(_is_kaggle, lines[:1])):
        raise _kaggle_table(path)
    if any(_BRACKETS.fullmatch(cell) for line in lines for cell in line.split()[1:]):
        raise InputError(
            f"{path} must have a token and its tag on each line. Received: columns of CoNLL-2012 "
            "(OntoNotes), whose entities are brackets over several lines. Write the words (column "
            "3) and the entities (column 10) as BIO: B-PERSON for (PERSON*, I-PERSON until the *) "
            "that closes it, O elsewhere."
        )


def require_known_files(folder: str) -> None:
    """Check a folder in which no part is found.

    Raises:
      InputError: it holds files of brat or Kaggle's table.
    """
    inside = [os.path.join(glob.escape(folder), pattern) for pattern in ("*", "*/*")]
    for path in sorted(path for pattern in inside for path in glob.glob(pattern)):
        require_not_brat(path)
        if format_of(path) == ".csv" and _is_kaggle(_first_line(path)):
            raise _kaggle_table(path)


def require_not_brat(path: str) -> None:
    """Check that a file is not one of brat's pairs .ann and .txt.

    Raises:
      InputError: it is.
    """
    annotations = f"{os.path.splitext(path)[0]}.ann"
    if path.endswith((".ann", ".txt")) and os.path.isfile(annotations):
        raise InputError(
            "--data_dir must hold CoNLL columns or JSON lines. Received: "
            f"{annotations!r}, in brat's layout (.ann and .txt). For each document, write a JSON "
            "line with its `text` and `entities`: [start, end, label] of each line that begins "
            "with T."
        )


def _first_line(path: str) -> str:
    """Return the first line of a file in any encoding, "" if it is no text."""
    with contextlib.suppress(InputError):
        for file in files_of(path, errors="replace"):
            return next((line for _, line in file.lines()), "")
    return ""


def _is_kaggle(line: str) -> bool:
    return line.lstrip('"').startswith(_KAGGLE)


def _kaggle_table(path: str) -> InputError:
    return InputError(
        f"{path} must have CoNLL columns. Received: Kaggle's table `Sentence #,Word,POS,Tag`. "
        "Write Word and Tag of each row with a tab between them, and a blank line before each row "
        "whose `Sentence #` is not empty, as UTF-8."
    )
