"""Exceptions and notes that users can act on, each with a one-line message."""

import contextlib
import errno
import functools
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from tokenize import TokenError
from typing import Any

_POINTER = b"version https://git-lfs.github.com/spec/"  # how a Git LFS pointer begins
_MAX_POINTER = 1024  # bytes, by its specification
DAMAGED = "it is damaged"
# What NumPy raises for damaged files.
DAMAGES = (
    *(OSError, ValueError, KeyError, TypeError, EOFError, OverflowError, RuntimeError),
    TokenError,  # from headers, which are Python
)
_SHORT_WRITE = re.compile(r"\d+ requested and \d+ written")  # numpy's OSError, without a number
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Failures that no program can prevent: of the disk, the permissions or the file system.
MACHINE_ERRNOS = _NO_ROOM | {
    errno.EROFS,
    errno.EIO,
    errno.EACCES,
    errno.EPERM,
    errno.ESTALE,
    errno.ENAMETOOLONG,
    errno.ENOLCK,
}


_MOST_ITEMS, _MOST_CHARACTERS = 10, 100  # of a value in a message


class InputError(ValueError):
    """A mistake in the user's input.

    The message is one line that gives the argument, the rule, the value received and the remedy.
    Commands print an `InputError` or a `MachineError` without a traceback and exit with status 2.
    Unexpected exceptions keep their tracebacks.
    """


class InputNotFoundError(InputError, FileNotFoundError):
    """A path or a glob that matches nothing; the message gives it and the working directory."""


class ConfigError(InputError):
    """A configuration with an unknown key or an invalid value."""


class MachineError(OSError):
    """A failure of the machine: a full disk, a missing permission, a killed worker.

    The message is one line, as in `InputError`. The same command may succeed later.
    """


def listed(names: Sequence[str], most: int = _MOST_ITEMS) -> str:
    """Return names for a message: "a, b, c", or the first `most` of them "and 17 more"."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def printable(text: str) -> str:
    r"""Return a text with escapes, such as \x1b, in place of characters that are not printable.

    A terminal obeys some of these; others hide or reorder parts of a name.
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


@functools.cache
def note_once(text: str) -> None:
    """Print a note, made `printable`, if this process has not printed it before."""
    print(f"note: {printable(text)}", file=sys.stderr)


def shortened(value: Any) -> str:
    """Return the representation of a value, cut off, with the first ten items of a long list."""
    if isinstance(value, list | tuple) and len(value) > _MOST_ITEMS:
        return f"({listed([_cut_off(repr(item)) for item in value])})"
    return _cut_off(repr(value))


def _cut_off(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


@contextlib.contextmanager
def in_file(path: str) -> Iterator[None]:
    """Name a file in the message of a ConfigError of the block, which has read it."""
    try:
        yield
    except ConfigError as error:
        raise type(error)(f"{os.fspath(path)!r}: {error}") from None


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn a disk or permission error in the block, which reads `path`, into a MachineError.

    Raises:
      InputError: `path` is a Git LFS pointer.
      EOFError: a damaged archive names an impossible place in the file.
    """
    try:
        _require_downloaded(path)
        yield
    except (InputError, MachineError):
        raise
    except Exception as error:
        number = _errno(error)
        if number is None:  # also from gzip: the file's content is bad
            raise
        if number == errno.EINVAL:  # from a seek
            raise EOFError(DAMAGED) from error
        raise MachineError(
            f"{os.fspath(path)!r} cannot be read: {os.strerror(number)}. Make it readable, or pass "
            "another path."
        ) from None


def _require_downloaded(path: str) -> None:
    """Check that a file is not a Git LFS pointer, which a clone without git-lfs leaves."""
    if not os.path.isfile(path) or os.path.getsize(path) > _MAX_POINTER:
        return
    with open(path, "rb") as file:
        if file.read(len(_POINTER)) != _POINTER:
            return
    raise InputError(
        f"{os.fspath(path)!r} must be the file itself. Received: a Git LFS pointer to it. Run "
        "`git lfs pull` in its folder, or download the file."
    )


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn a disk or permission error in the block, which writes `path`, into a MachineError."""
    try:
        yield
    except (InputError, MachineError):
        raise
    except Exception as error:
        number = _errno(error)
        if number not in MACHINE_ERRNOS:
            raise
        remedy = "Free some space" if number in _NO_ROOM else "Pass a writable path"
        raise MachineError(
            f"{os.fspath(path)!r} cannot be written: {os.strerror(number)}. {remedy} and run the "
            "same command again."
        ) from None


@contextlib.contextmanager
def writing_temporary() -> Iterator[None]:
    """Turn an OSError of the block, which writes a temporary file, into a MachineError."""
    try:
        yield
    except OSError as error:
        where = f" in {tempfile.tempdir!r}" if tempfile.tempdir else ""  # None: none is usable
        raise MachineError(
            f"no temporary file can be written{where}: {error.strerror or error}. Set TMPDIR to a "
            "folder that has room and run the same command again."
        ) from None


def _errno(error: Exception) -> int | None:
    """Return the error number; TensorFlow's own exceptions only contain the system's words."""
    number = getattr(error, "errno", None)
    if number is not None:
        return number
    if _SHORT_WRITE.fullmatch(str(error)):
        return errno.ENOSPC
    return next((n for n in MACHINE_ERRNOS if os.strerror(n) in str(error)), None)
