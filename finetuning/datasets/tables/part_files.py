"""The files of the parts of a dataset, plain or compressed."""

import os
from collections.abc import Sequence

from albert_tf.runtime.errors import InputError, InputNotFoundError, listed
from albert_tf.runtime.files.compression import SUFFIXES
from albert_tf.runtime.files.paths import require_file


def find(folder: str, names: Sequence[str]) -> str:
    """Return the only file in a folder with one of these names, plain or compressed.

    Raises:
      InputNotFoundError: there is no such file or folder.
      InputError: there are several files, or `folder` is a file, or what is found is none.
    """
    if os.path.isfile(folder):
        raise InputError(f"--data_dir must be a folder. Received: {folder!r}, a file.")
    possible = [os.path.join(folder, name + end) for name in names for end in ("", *SUFFIXES)]
    found = [path for path in possible if os.path.exists(path)]
    if not os.path.isdir(folder):
        raise InputNotFoundError(
            f"--data_dir: no folder {folder!r} (working directory {os.getcwd()})."
        )
    if not found:
        raise InputNotFoundError(
            f"--data_dir: no file {' or '.join(names)} (or the same with {', '.join(SUFFIXES)}) in "
            f"{folder!r} (working directory {os.getcwd()}).{_similar(folder, names)}"
        )
    if len(found) > 1:
        raise InputError(
            f"--data_dir must hold only one of {' and '.join(found)}: remove the others."
        )
    require_file(found[0], "--data_dir")
    return found[0]


def _similar(folder: str, names: Sequence[str]) -> str:
    """Return a sentence on the files that have one of the names but for case and extension."""
    stems = tuple({f"{os.path.splitext(name)[0]}.".lower() for name in names})
    similar = sorted(name for name in os.listdir(folder) if name.lower().startswith(stems))
    if not similar:
        return ""
    known = tuple(name + end for name in names for end in ("", *SUFFIXES))
    differs = all(name.lower() in known for name in similar)
    remedy = "write it in lower case" if differs else "save it in one of these formats"
    return f" There is {listed(similar, 3)}: {remedy}."
