"""The files of each kind of corpus."""

import glob
import os
from collections.abc import Callable

from albert_tf.runtime.errors import InputError, InputNotFoundError, listed, note_once
from albert_tf.runtime.files import paths
from albert_tf.runtime.files.compression import format_of, is_zip
from data.corpora import python_docs
from data.corpora.arrow_tables import saved_files
from data.corpora.readers import DOCUMENTS, SUFFIXES, unknown_suffix
from data.corpora.tfds_texts import tfds_files


def _matching_files(pattern: str, data_dir: str | None = None) -> list[str]:
    if os.path.isdir(pattern):
        raise InputNotFoundError(
            f"--corpus: {pattern!r} is a folder. Name its files, as in KIND:'{pattern}/*'."
        )
    if os.path.exists(pattern):
        paths.require_file(pattern, "--corpus")
    files = paths.files_matching(pattern, "--corpus")
    if not files:
        raise InputNotFoundError(
            f"--corpus: no file matches {pattern!r} in the working directory {os.getcwd()!r}. "
            "Check the path."
        )
    return files


def _files_by_suffix(pattern: str, data_dir: str | None = None) -> list[str]:
    """Return the files that kind `files` reads; a note names the others.

    Raises:
      InputError: a file is a PDF or another document that holds text, but is not read.
    """
    if os.path.isdir(pattern):
        pattern = f"{glob.escape(pattern)}/**/*"
        if not paths.files_matching(pattern, "--corpus"):
            raise InputNotFoundError(f"--corpus: the folder {pattern[:-5]!r} has no files.")
    names = _matching_files(pattern)
    if documents := [name for name in names if format_of(name) in DOCUMENTS]:
        raise InputError(f"--corpus: {unknown_suffix(documents[0])}")
    files = [name for name in names if format_of(name) in SUFFIXES or is_zip(name)]
    known = set(files)
    if others := [name for name in names if name not in known]:
        note_once(f"--corpus: files with other suffixes are left out: {listed(others, 5)}.")
    if not files:
        raise InputError(f"--corpus: {unknown_suffix(names[0])}")
    return files


def _race_files(folder: str, data_dir: str | None = None) -> list[str]:
    is_folder = os.path.isdir(folder)
    return _matching_files(f"{glob.escape(folder)}/**/*.txt*" if is_folder else folder)


FILES: dict[str, Callable[[str, str | None], list[str]]] = {
    "text": _matching_files,
    "sentences": _matching_files,
    "jsonl": _matching_files,
    "parquet": _matching_files,
    "arrow": _matching_files,
    "datasets": lambda folder, _: saved_files(folder),
    "markdown": _matching_files,
    "html": _matching_files,
    "files": _files_by_suffix,
    "wikiextractor": _matching_files,
    "tfds": tfds_files,
    "squad": _matching_files,
    "race": _race_files,
    "python_docs": lambda where, _: python_docs.files(where),
}
