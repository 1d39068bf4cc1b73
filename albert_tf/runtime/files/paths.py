"""Paths as users write them: `~` for a home folder, globs, and what is not a file."""

import glob
import os
import re
import stat

from albert_tf.runtime.errors import InputError, InputNotFoundError, listed, note_once

# At the beginning, or after the colon of a prefix (google:~/model) or a comma of a list.
_HOME = re.compile(r"(^|[:,]\s*)(~[^/:,]*)")
_SPECIAL = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def expand(text: str) -> str:
    """Return a path, or several with prefixes and commas, with `~` and `~USER` expanded."""
    return _HOME.sub(lambda match: match[1] + os.path.expanduser(match[2]), text)


def matching(pattern: str) -> list[str]:
    """Return the paths that match a glob, sorted.

    A path that exists stands for itself, and so does a folder in which the rest is looked for.
    """
    parts = pattern.split("/")
    for count in range(len(parts), 0, -1):
        if os.path.lexists(known := "/".join(parts[:count])):
            pattern = "/".join([glob.escape(known), *parts[count:]])
            break
    return sorted(glob.glob(pattern, recursive=True))


def files_matching(pattern: str, flag: str) -> list[str]:
    """Return the files that match a glob, sorted; a note names what else does.

    Folders are not named if the glob has `**`, which also matches what is in them.
    """
    matches = matching(pattern)
    files = list(filter(os.path.isfile, matches))
    kinds = {path: _kind_of(path) for path in matches if not os.path.isfile(path)}
    if "**" in pattern:
        kinds = {path: kind for path, kind in kinds.items() if kind != _SPECIAL[stat.S_IFDIR]}
    if files and kinds:
        others = listed([f"{path} ({kind})" for path, kind in kinds.items()], 3)
        note_once(f"{flag}: these matches of {pattern!r} are not files and are left out: {others}.")
    return files


def _kind_of(path: str) -> str:
    """Return what is at a path, "" for a file."""
    if not os.path.exists(path):
        return "a broken link" if os.path.islink(path) else "nothing"
    kind = stat.S_IFMT(os.stat(path).st_mode)
    return "" if kind == stat.S_IFREG else _SPECIAL.get(kind, "something else")


def require_file(path: str, flag: str, remedy: str = "Write its content to a file.") -> None:
    """Check that `path` is a file, not a folder, a device or a pipe.

    Raises:
      InputNotFoundError: there is nothing at `path`.
      InputError: something else is there.
    """
    where = f"{flag}: " if flag else ""
    if not os.path.exists(path):
        raise InputNotFoundError(f"{where}no file {path!r} (working directory {os.getcwd()}).")
    if kind := _kind_of(path):
        raise InputError(f"{where}{path} must be a file. Received: {kind}. {remedy}")
