"""Writers of files and folders that get their final name only once they are complete."""

import contextlib
import errno
import glob
import gzip
import io
import json
import os
import shutil
import sys
from collections.abc import Iterator
from typing import IO, Any

from albert_tf.runtime.errors import InputError, InputNotFoundError, MachineError, reading, writing
from albert_tf.runtime.files.compression import is_compressed
from albert_tf.runtime.files.json_text import json_object
from albert_tf.runtime.files.locks import lock, locked

_STDOUT = ("-", "/dev/stdout")
_STREAMS = ("/dev/stdout", "/dev/stderr", "/dev/fd/")  # which are written, wherever they lead
GZIP = ".gz"  # the only compression of what is written
SUFFIX = ".incomplete"
MARK = ".albert_tf"  # a file in a folder that this project is writing, locked by its process
_LEVEL = 6  # gzip's own default; Python's, 9, takes several times as long


@contextlib.contextmanager
def new_folder(
    path: str, flag: str = "--output", identity: str = "", supersedes: bool = False
) -> Iterator[str]:
    """Yield a folder next to `path` to write into; rename it to `path` when the block ends.

    Files in it whose names begin with MARK are not part of the result and are removed at the end.
    If the block raises, the folder is deleted. If the process is killed, the next call deletes the
    folder.

    With an `identity`, a string that states everything that determines the content, the folder
    survives a killed process and any exception except InputError. The next call with the same
    identity yields it again; one with another identity is refused or, if it `supersedes` the first,
    empties it.

    Raises:
      InputError: `path` exists and is not an empty folder, or cannot be written; or the folder next
        to it is no unfinished output, has another identity, or another process is writing it.
      MachineError: writing fails, for example because the disk is full; or renaming fails, and the
        complete folder stays where it is.
    """
    require_new(path, flag)
    final = os.path.realpath(path)
    partial = final + SUFFIX
    _remove_leftover(partial, flag, identity, supersedes)
    parents = _missing_parents(final)
    try:
        try:
            os.makedirs(partial, exist_ok=True)
        except OSError as error:
            raise _unwritable(flag, path, error.errno) from None
        in_use = _in_use(partial, flag)
        with writing(path), locked(os.path.join(partial, MARK), "a", in_use) as mark:
            try:
                require_new(path, flag)  # another process may have completed it meanwhile
                if not mark.tell():
                    mark.write(identity)
                    mark.flush()
                    os.fsync(mark.fileno())
                yield partial
                sync_all(partial)
            except BaseException as error:
                if not identity or isinstance(error, InputError):
                    shutil.rmtree(partial, ignore_errors=True)
                raise
            _give_name(partial, final)
    finally:
        for parent in parents:
            if os.path.isdir(parent) and not os.listdir(parent):
                os.rmdir(parent)


def _give_name(partial: str, final: str) -> None:
    """Rename a complete folder and remove its marks, without which no later call will empty it."""
    folder = partial
    try:
        if os.path.isdir(final):
            os.rmdir(final)
        os.replace(partial, final)
        folder = final
    except OSError as error:
        raise MachineError(
            f"{partial!r} is complete but cannot be renamed to {final!r}: {error.strerror}. "
            "Move it yourself."
        ) from None
    finally:
        for name in glob.glob(f"{MARK}*", root_dir=folder):
            os.remove(os.path.join(folder, name))


def _remove_leftover(partial: str, flag: str, identity: str, supersedes: bool) -> None:
    """Empty the folder `partial` of a killed process, unless it has the same identity."""
    try:
        if not os.path.lexists(partial) or (os.path.isdir(partial) and not os.listdir(partial)):
            return
        with locked(os.path.join(partial, MARK), "r+", _in_use(partial, flag)) as mark:
            if identity == (before := mark.read()) != "":
                return
            if before and not supersedes:
                raise InputError(
                    f"{flag}: an interrupted command with other options or another input left "
                    f"its work in {partial!r}. Repeat that command to continue it, or remove the "
                    "folder."
                )
            mark.truncate(0)
            for name in os.listdir(partial):
                if name != MARK:
                    _remove(os.path.join(partial, name))
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise _unwritable(flag, partial, error.errno) from None
        raise InputError(
            f"{flag} needs the name {partial!r} for its unfinished output, but that path exists "
            "and is no unfinished output of this project: move it or name another folder."
        ) from None


def _in_use(partial: str, flag: str) -> str:
    return f"{flag}: another process is writing {partial!r}"


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.remove(path)


def sync_all(folder: str) -> None:
    """Flush the files in a folder to disk."""
    for root, _, names in os.walk(folder):
        for name in names:
            _sync(os.path.join(root, name))


def _sync(path: str) -> None:
    """Flush a file to disk, so that a power cut cannot leave its name without its content."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _missing_parents(path: str) -> list[str]:
    """Return the folders above `path` that do not exist yet, deepest first."""
    missing = []
    while not os.path.lexists(path := os.path.dirname(path)):
        missing.append(path)
    return missing


def require_new(path: str, flag: str = "--output") -> None:
    """Check that `path` can be created, or is an empty folder.

    Raises:
      InputError: `path` is a URL, exists and is not an empty folder, or cannot be written.
    """
    if "://" in path:
        raise InputError(
            f"{flag} must be a local or mounted folder. Received: {path!r}. Copy the "
            "result to a bucket afterwards: gcloud storage cp -r."
        )
    if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise InputError(
            f"{flag} must name a new or empty folder. Received: {path!r}, which is neither. Name "
            "another folder."
        )
    final = os.path.realpath(path)
    # Neither can be replaced. The working folder may have been removed: `.` then has no path.
    if os.path.ismount(final) or (os.path.isdir(final) and os.path.samefile(final, ".")):
        raise InputError(
            f"{flag} must not be a mount point or the working folder. Received: {path!r}. Name a "
            f"folder in it, such as {os.path.join(path, 'out')!r}."
        )
    parent = os.path.dirname([final, *_missing_parents(final)][-1])
    if not os.access(parent, os.W_OK | os.X_OK):
        raise _unwritable(flag, path, errno.EACCES if os.path.isdir(parent) else errno.ENOTDIR)


def require_file(path: str, flag: str) -> None:
    """Check that a file can be written at `path`, whose folder `new_file` creates.

    Raises:
      InputError: `path` is a URL or a folder, has the name of a compression other than .gz, or it
        or its folder cannot be written.
    """
    if is_stdout(path):
        return
    if is_compressed(path) and not path.lower().endswith(GZIP):
        raise InputError(
            f"{flag} can be compressed as {GZIP} only. Received: {path!r}. Name it {GZIP}, or "
            "without a compression."
        )
    folder = os.path.dirname(os.path.abspath(path)) if path else ""
    while folder and not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if "://" in path or not os.path.isdir(folder):
        raise InputError(
            f"{flag} must be a local file in a folder that exists or can be created. Received: "
            f"{path!r} (working directory {os.getcwd()}). Name another file."
        )
    if os.path.isdir(path):
        raise InputError(f"{flag} must be a file. Received: {path!r}, a folder.")
    is_replaced = not _is_device(path)
    if (os.path.exists(path) and not os.access(path, os.W_OK)) or (
        is_replaced and not os.access(folder, os.W_OK | os.X_OK)
    ):
        raise _unwritable(flag, path, errno.EACCES)


def require_folder(path: str, flag: str) -> None:
    """Check that `path` is a writable folder, or that it can be created.

    Raises:
      InputError: `path` is a file, or cannot be written or created.
    """
    if os.path.isfile(path):
        raise InputError(f"{flag} must be a folder. Received: {path!r}, a file.")
    if not os.path.isdir(path):
        require_new(path, flag)
    elif not os.access(path, os.W_OK | os.X_OK):
        raise _unwritable(flag, path, errno.EACCES)


def _unwritable(flag: str, path: str, number: int | None) -> InputError:
    reason = os.strerror(number or errno.EIO)
    return InputError(f"{flag}={path} cannot be written: {reason}. Name another path.")


def _is_device(path: str) -> bool:
    """Return True for a pipe or a device, and for /dev/stdout wherever it leads."""
    return os.path.exists(path) and (not os.path.isfile(path) or path.startswith(_STREAMS))


def is_stdout(path: str) -> bool:
    """Return True for `-` and /dev/stdout, to which `new_text` writes without closing it."""
    return path in _STDOUT


def say(path: str, note: str) -> None:
    """Print a note on what was written to `path`: to stderr if stdout has the content."""
    print(note, file=sys.stderr if is_stdout(path) else sys.stdout)


@contextlib.contextmanager
def new_file(path: str) -> Iterator[str]:
    """Yield a temporary path next to `path`; rename it to `path` when the block ends.

    Missing folders are created. Readers see either the complete new file or the old one, also if
    several processes write it. A pipe or a device is yielded itself. If `path` is a link, its file
    is replaced. A new file has the permissions of the old one.

    Raises:
      MachineError: the disk is full, or the folder cannot be written.
    """
    if _is_device(path):
        yield path
        return
    path = os.path.realpath(path)
    _remove_partial_files(path)
    partial = f"{path}.{os.urandom(4).hex()}{SUFFIX}"
    try:
        with writing(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(partial, "a") as file:
                lock(file, partial)  # other processes leave it alone
                with contextlib.suppress(OSError):  # no old file, or no permissions on this disk
                    shutil.copymode(path, partial)
                yield partial
                _sync(partial)
                os.replace(partial, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(partial)


def _remove_partial_files(path: str) -> None:
    """Remove what killed processes have left of a file."""
    for partial in glob.glob(f"{glob.escape(path)}.{'[0-9a-f]' * 8}{SUFFIX}"):
        with contextlib.suppress(OSError, InputError), open(partial, "r+") as file:
            if lock(file, partial):
                os.remove(partial)


@contextlib.contextmanager
def new_text(path: str) -> Iterator[IO[str]]:
    """Yield a file to write UTF-8 text to, which gets its name as with `new_file`.

    It is compressed if its name ends in .gz; the same text always gives the same bytes. For `-` and
    /dev/stdout it is sys.stdout, in its own encoding.

    Raises:
      InputError: stdout is closed.
    """
    if is_stdout(path):
        if sys.stdout is None:
            raise InputError(f"{path!r} is closed. Name a file.")
        yield sys.stdout
        sys.stdout.flush()
        return
    with new_file(path) as partial:
        if not path.lower().endswith(GZIP):
            with open(partial, "w", encoding="utf-8") as file:
                yield file
            return
        with (
            open(partial, "wb") as raw,
            gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as packed,
            io.TextIOWrapper(packed, "utf-8") as file,
        ):
            yield file


def write_bytes(path: str, content: bytes) -> None:
    """Write a file atomically: `path` holds either the old content or all of the new."""
    with new_file(path) as partial, open(partial, "wb") as file:
        file.write(content)


def read_json(path: str, allow_nan: bool = False) -> dict[str, Any]:
    """Return the object in a JSON file.

    Args:
      path: the file.
      allow_nan: accept NaN and Infinity, which results of a diverged run may contain.

    Raises:
      InputNotFoundError: there is no such file.
      InputError: the file does not contain a JSON object.
      MachineError: the file cannot be read.
    """
    if not os.path.isfile(path):
        raise InputNotFoundError(f"no file {path!r} (working directory {os.getcwd()}).")
    with reading(path), open(path, "rb") as file:
        return json_object(file.read(), repr(path), allow_nan)


def write_json(path: str, values: Any) -> None:
    """Write JSON atomically: `path` holds either the old content or all of the new."""
    with new_text(path) as file:
        json.dump(values, file, indent=1)
        file.write("\n")
