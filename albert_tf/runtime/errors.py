"""Errors meant for people: one line that says what to do."""

import contextlib
import errno
import os
from collections.abc import Iterator

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# What no program can help: the disk, the rights, the file system.
_OF_THE_MACHINE = _NO_ROOM | {
    errno.EROFS,
    errno.EIO,
    errno.EACCES,
    errno.EPERM,
    errno.ESTALE,
    errno.ENAMETOOLONG,
    errno.ENOLCK,
}


class InputError(ValueError):
    """A mistake in what the user passed.

    The message is one line that names the argument, the rule, the value received and the remedy.
    Every command prints it, and `MachineError`, without a traceback and exits with status 2; any
    other exception keeps its traceback.
    """


class InputNotFoundError(InputError, FileNotFoundError):
    """A path or a glob that matches nothing. The message names it and the working directory."""


class ConfigError(InputError):
    """A configuration with an unknown key or an impossible value."""


class MachineError(OSError):
    """What the machine refuses: a full disk, a file without permission, a killed worker.

    The message is one line, as `InputError`'s; the same command may go on later.
    """


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """MachineError for an OSError in the block, which does nothing but read `path`."""
    try:
        yield
    except (InputError, MachineError):
        raise
    except OSError as error:
        if error.errno is None:  # of gzip: what is in the file
            raise
        raise MachineError(
            f"{os.fspath(path)!r} cannot be read: {error.strerror}. Make it a readable file, or "
            "name another."
        ) from None


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """MachineError where the block, which writes `path`, meets a full disk or lacks permission."""
    try:
        yield
    except (InputError, MachineError):
        raise
    except Exception as error:
        number = getattr(error, "errno", None)
        if number is None:  # TensorFlow has exceptions of its own, with the same words
            number = next((n for n in _OF_THE_MACHINE if os.strerror(n) in str(error)), None)
        if number not in _OF_THE_MACHINE:
            raise
        remedy = "Make room" if number in _NO_ROOM else "Name a place that can be written"
        raise MachineError(
            f"{os.fspath(path)!r} cannot be written: {os.strerror(number)}. {remedy}, and give the "
            "same command again."
        ) from None
