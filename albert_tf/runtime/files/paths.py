"""Paths as users write them: `~` for a home folder, globs, and what is not a file."""

import contextlib
import errno
import fnmatch
import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence

from albert_tf.runtime.errors import InputError, InputNotFoundError, listed, note_once, reading

# At the beginning, or after the colon of a prefix (google:~/model) or a comma of a list.
_HOME = re.compile(r"(^|[:,]\s*)(~[^/:,]*)")
# As for `os.path.exists`. A list of paths may be one that is too long.
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
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

    A path that exists stands for itself, and so does a folder in which the rest is looked for. `**`
    stands for any folders; linked ones count once, after the others, and may be links to a parent.
    A note names folders that the user has no permission to read.

    Raises:
      MachineError: a folder cannot be read for another reason.
    """
    names = pattern.split("/")
    for count in range(len(names), 0, -1):
        if os.path.lexists(known := "/".join(names[:count]) or pattern[:1]):
            names = names[count:]
            break
    else:
        known = ""
    if "**" not in names:
        return sorted(_inside([known], names))
    names = "/".join(names).rstrip("/").split("/")
    place = names.index("**")
    return sorted(
        path
        for root in _inside([known], names[:place])
        if os.path.isdir(root or ".")
        for found in _below(root, is_hidden=any(n.startswith(".") for n in names[place:]))
        if _fits(found, names[place:]) and (path := os.path.join(root, *found))
    )


def _inside(folders: list[str], names: Sequence[str]) -> list[str]:
    """Return the paths in folders that fit the names of a glob without `**`."""
    for name in names:
        folders = [path for folder in folders for path in _fitting(folder, name)]
    return folders


def _fitting(folder: str, name: str) -> list[str]:
    if glob.has_magic(name):
        return [os.path.join(folder, e.name) for e in _entries(folder) if _fits([e.name], [name])]
    path = os.path.join(folder, name)
    with _passing_over(folder):
        os.lstat(path)
        return [path]
    return []


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with _passing_over(folder):
        return sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
    return []


@contextlib.contextmanager
def _passing_over(folder: str) -> Iterator[None]:
    """Pass over what the block does not find in a folder or, with a note, may not read there."""
    with reading(os.path.join(folder or ".", "")):  # with a slash, no file counts as its content
        try:
            yield
        except PermissionError as error:
            note_once(f"{folder or '.'} cannot be read and is left out: {error.strerror}.")
        except OSError as error:
            if error.errno not in _ABSENT:
                raise


def _below(root: str, is_hidden: bool) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all folders and files below a folder, as names, and of the folder itself.

    Args:
      root: the folder.
      is_hidden: also go into folders whose names begin with a dot.
    """
    yield ()
    seen = {os.path.realpath(root)}
    waiting: list[tuple[str, ...]] = [()]
    links: list[tuple[str, ...]] = []
    while waiting or links:
        folder = waiting.pop() if waiting else links.pop(0)
        if not waiting and folder and os.path.islink(os.path.join(root, *folder)):
            if (real := os.path.realpath(os.path.join(root, *folder))) in seen:
                continue
            seen.add(real)
        for entry in _entries(os.path.join(root, *folder)):
            yield (path := (*folder, entry.name))
            is_folder = entry.is_dir(follow_symlinks=False) or os.path.isdir(entry.path)
            if not is_folder or (entry.name.startswith(".") and not is_hidden):
                continue
            if entry.is_symlink():
                links.append(path)
            elif (real := os.path.realpath(entry.path)) not in seen:
                seen.add(real)
                waiting.append(path)


def _fits(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return True if the names of a path fit those of a glob, as `glob.glob` has it."""
    if not pattern:
        return not names
    first, *rest = pattern
    if first == "**" and (_fits(names, rest) if rest else not names):
        return True
    if not names or (names[0].startswith(".") and not first.startswith(".")):
        return False
    if first == "**":
        return _fits(names[1:], pattern)
    return fnmatch.fnmatchcase(names[0], first) and _fits(names[1:], rest)


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
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except OSError as error:
        is_absent = error.errno in _ABSENT
        return "a broken link" if is_absent and os.path.islink(path) else str(error.strerror)
    return "" if kind == stat.S_IFREG else _SPECIAL.get(kind, "something else")


def require_utf8(path: str, flag: str) -> None:
    """Check that the name of a path can be written to files.

    Raises:
      InputError: it is not UTF-8.
    """
    if path != path.encode("utf-8", "replace").decode():
        raise InputError(
            f"{flag} must be a path whose name is UTF-8. Received: {os.fsencode(path)!r}. Rename "
            "the folder or file."
        )


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


def require_other_file(path: str, flag: str, inputs: Mapping[str, Iterable[str]]) -> None:
    """Check that a file to write is none of those that the command reads.

    Args:
      path: the file to write, or `-` for stdout.
      flag: its flag.
      inputs: other flags -> their files; `-` is stdin.

    Raises:
      InputError: it is one of them, perhaps by another name.
    """
    if path == "-" or not os.path.isfile(path):
        return
    output = os.stat(path)
    for other, names in inputs.items():
        for name in names:
            with contextlib.suppress(OSError):  # another error names a file that is not there
                if os.path.samestat(output, os.fstat(0) if name == "-" else os.stat(name)):
                    raise InputError(
                        f"{flag} must not be a file of {other}, which it would replace. Received: "
                        f"{path!r}. Name another file."
                    )


def cache_folder(*names: str) -> str:
    """Return the folder of a cache of this package, which may not exist.

    Raises:
      InputError: the user has no home folder, and XDG_CACHE_HOME is not set.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if cache.startswith("~"):
        raise InputError(
            "caches need a folder, but this user has no home folder. Set XDG_CACHE_HOME to a "
            "writable folder."
        )
    return os.path.join(cache, "albert_tf", *names)
