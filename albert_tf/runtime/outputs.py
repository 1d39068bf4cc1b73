"""Outputs appear under their final name only when they are complete."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from typing import IO, Any

from albert_tf.runtime.errors import InputError, InputNotFoundError, reading, writing

SUFFIX = ".incomplete"
MARK = ".albert_tf"  # a file in a folder being written: it is ours, and locked while we live


@contextlib.contextmanager
def new_folder(path: str, flag: str = "--output", identity: str = "") -> Iterator[str]:
    """Yields a folder beside `path` to write into; it takes the name `path` when the block ends.

    Files in it whose names begin with MARK are no part of the result and are removed then. Where
    the block raises, nothing is left. What a killed process left is cleared by the next.
    With an `identity`, which says all that decides the content, what is there is left unless the
    block finds a mistake in the input, and the next call of the same identity yields it again.

    Raises:
      InputError: `path` exists and is not an empty folder, or cannot be written; the folder beside
        it was not made here, or another process is at work in it.
      MachineError: the disk is full.
    """
    require_new(path, flag)
    final = os.path.realpath(path)
    partial = final + SUFFIX
    _remove_leftover(partial, flag, identity)
    parents = _missing_parents(final)
    try:
        try:
            os.makedirs(partial, exist_ok=True)
        except OSError as error:
            raise _unwritable(flag, path, error.errno) from None
        with _locked(partial, "a", flag) as mark:
            try:
                with writing(path):
                    if not mark.tell():
                        mark.write(identity)
                        mark.flush()
                        os.fsync(mark.fileno())
                    yield partial
                    _sync_all(partial)
                if os.path.isdir(final):
                    os.rmdir(final)
                os.replace(partial, final)
                for name in os.listdir(final):
                    if name.startswith(MARK):
                        os.remove(os.path.join(final, name))
            except BaseException as error:
                if not identity or isinstance(error, InputError):
                    shutil.rmtree(partial, ignore_errors=True)
                raise
    finally:
        for parent in parents:
            if os.path.isdir(parent) and not os.listdir(parent):
                os.rmdir(parent)


def _remove_leftover(partial: str, flag: str, identity: str) -> None:
    """Removes the folder `partial` if a killed process left it, unless it is to be continued."""
    if not os.path.lexists(partial) or (os.path.isdir(partial) and not os.listdir(partial)):
        shutil.rmtree(partial, ignore_errors=True)
        return
    try:
        with _locked(partial, "r+", flag) as mark:
            if not identity or mark.read() != identity:
                shutil.rmtree(partial)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{flag} needs the name {partial!r} while it is written, and what has that name was "
            "not made by this project: move it or name another folder."
        ) from None


@contextlib.contextmanager
def _locked(partial: str, mode: str, flag: str) -> Iterator[IO[str]]:
    """Holds the mark inside `partial`; the system lets go of it when the process dies."""
    with open(os.path.join(partial, MARK), mode, encoding="utf-8", errors="replace") as mark:
        lock(mark, f"{flag}: another process is writing {partial!r}")
        yield mark


def lock(file: IO[str], problem: str) -> None:
    """Holds an open file until it is closed; the system lets go of it when the process dies.

    `filelock` makes the same call, for one more dependency: 14 microseconds here, 91 there.

    Raises:
      InputError: another one holds it, which is the `problem`.
      OSError: the file system has no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"{problem}: wait for it or name another folder.") from None


def _sync_all(folder: str) -> None:
    for root, _, names in os.walk(folder):
        for name in names:
            _sync(os.path.join(root, name))


def _sync(path: str) -> None:
    """Brings a file to the disk: a name without its content would outlive a power cut."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _missing_parents(path: str) -> list[str]:
    """The folders above `path` that do not exist yet, the deepest first."""
    missing = []
    while not os.path.lexists(path := os.path.dirname(path)):
        missing.append(path)
    return missing


def require_new(path: str, flag: str = "--output") -> None:
    """Refuses a path that exists, unless it is an empty folder, or that nothing can be made at."""
    if "://" in path:
        raise InputError(
            f"{flag} must be a folder of this machine, or mounted. Received: {path!r}. Copy the "
            "result to a bucket afterwards: gcloud storage cp -r."
        )
    is_empty = os.path.isdir(path) and not os.listdir(path)
    if os.path.lexists(path) and not is_empty:
        raise InputError(
            f"{flag} must name a new or empty folder. Received: {path!r}, which exists and was not "
            "made by the same command: name another or remove it."
        )
    final = os.path.realpath(path)
    parent = os.path.dirname([final, *_missing_parents(final)][-1])
    if not os.access(parent, os.W_OK | os.X_OK):
        raise _unwritable(flag, path, errno.EACCES if os.path.isdir(parent) else errno.ENOTDIR)


def require_file(path: str, flag: str) -> None:
    """InputError: no file can be written at `path`, whose folder must exist."""
    folder = os.path.dirname(os.path.abspath(path)) if path else ""
    if "://" in path or not os.path.isdir(folder):
        raise InputError(
            f"{flag} must be a file in a folder that exists. Received: {path!r} (working folder "
            f"{os.getcwd()}). Make the folder, or name another."
        )
    if os.path.isdir(path):
        raise InputError(f"{flag} must be a file. Received: {path!r}, a folder.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unwritable(flag, path, errno.EACCES)


def require_folder(path: str, flag: str) -> None:
    """InputError: `path` is no folder, or none that files can be written to."""
    if os.path.isfile(path):
        raise InputError(f"{flag} must be a folder. Received: {path!r}, a file.")
    if not os.path.isdir(path):
        require_new(path, flag)
    elif not os.access(path, os.W_OK | os.X_OK):
        raise _unwritable(flag, path, errno.EACCES)


def _unwritable(flag: str, path: str, number: int | None) -> InputError:
    reason = os.strerror(number or errno.EIO)
    return InputError(f"{flag}={path} cannot be written: {reason}. Name another folder.")


@contextlib.contextmanager
def new_file(path: str) -> Iterator[str]:
    """Yields a name beside `path` to write to: `path` is the whole new file or what it was.

    Raises:
      MachineError: the disk is full, or the folder cannot be written.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe or a device stays what it is
        yield path
        return
    partial = path + SUFFIX
    try:
        with writing(path):
            yield partial
            _sync(partial)
            os.replace(partial, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(partial)


def write_bytes(path: str, content: bytes) -> None:
    """Writes a file that is either the whole new content or the old one, never a part."""
    with new_file(path) as partial, open(partial, "wb") as file:
        file.write(content)


def read_json(path: str) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
      InputNotFoundError: no file.
      InputError: something else in it.
    """
    if not os.path.isfile(path):
        raise InputNotFoundError(f"no file {path!r} (working folder {os.getcwd()}).")
    with reading(path), open(path, encoding="utf-8") as file:
        content = file.read()
    try:
        values = json.loads(content)
    except ValueError as error:
        raise InputError(f"{path!r} must be JSON: {error}.") from None
    if not isinstance(values, dict):
        raise InputError(f"{path!r} must hold keys and values. Received: {values!r}.")
    return values


def write_json(path: str, values: Any) -> None:
    """Writes JSON that is either the whole new content or the old one, never a part."""
    with new_file(path) as partial, open(partial, "w", encoding="utf-8") as file:
        json.dump(values, file, indent=1)
        file.write("\n")
