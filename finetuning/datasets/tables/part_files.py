"""The files of the parts of a dataset, plain or compressed."""

import glob
import os
from collections.abc import Sequence

from albert_tf.runtime.errors import InputError, InputNotFoundError, listed
from albert_tf.runtime.files.compression import SUFFIXES
from albert_tf.runtime.files.paths import require_file

_DEV = ("dev", "validation", "valid", "val")  # the names of the dev part
_ONE = "-00000-of-00001"


def find(folder: str, names: Sequence[str]) -> str:
    """Return the only file in a folder with one of these names, plain or compressed.

    A name in -00000-of-00001 stands for the first of any number of files, and a dev part
    may have any of its names.

    Raises:
      InputNotFoundError: there is no such file or folder.
      InputError: there are several files, or `folder` is a file, or what is found is none.
    """
    if os.path.isfile(folder):
        raise InputError(f"--data_dir must be a folder. Received: {folder!r}, a file.")
    others = [other + name[3:] for other in _DEV[1:] for name in names if name.startswith(_DEV[0])]
    paths = _existing(folder, [*names, *others])
    if not os.path.isdir(folder):
        raise InputNotFoundError(
            f"--data_dir: no folder {folder!r} (working directory {os.getcwd()})."
        )
    if not paths:
        named = f"named {', '.join(_DEV[1:-1])} or {_DEV[-1]}, or " if others else ""
        raise InputNotFoundError(
            f"--data_dir: no file {' or '.join(names)} (or the same {named}with "
            f"{', '.join(SUFFIXES)}) in {folder!r} (working directory {os.getcwd()})."
            f"{_similar(folder, [*names, *others])}"
        )
    require_file(path := only(paths), "--data_dir")
    return path


def only(paths: Sequence[str]) -> str:
    """Return the only path of a part.

    Raises:
      InputError: there are several.
    """
    if len(paths) > 1:
        raise InputError(
            f"--data_dir must hold only one of {' and '.join(paths)}: remove the others."
        )
    return paths[0]


def names_of(part: str) -> tuple[str, ...]:
    """Return the names that a part may have."""
    return _DEV if part == _DEV[0] else (part,)


def _existing(folder: str, names: Sequence[str]) -> list[str]:
    candidates = []
    for name in names:
        beginning, one, end = name.partition(_ONE)
        firsts = f"{glob.escape(os.path.join(folder, beginning))}-00000-of-{'[0-9]' * 5}{end}"
        paths = sorted(glob.glob(firsts)) if one else [os.path.join(folder, name)]
        candidates += [path + suffix for path in paths for suffix in ("", *SUFFIXES)]
    return [path for path in candidates if os.path.exists(path)]


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
