"""Errors meant for people: one line that says what to do."""

import contextlib
import errno
import os
from collections.abc import Iterator

# What no program can help: the disk, the rights, the file system.
_OF_THE_MACHINE = {
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM, errno.EFBIG,
    errno.ESTALE, errno.ENAMETOOLONG, errno.ENOLCK,
}  # fmt: skip


class InputError(ValueError):
    """A mistake in what the user passed.

    The message is one line that names the argument, the rule, the value received and the remedy.
    Every command prints it without a traceback and exits with status 2; any other exception keeps
    its traceback.
    """


class InputNotFoundError(InputError, FileNotFoundError):
    """A path or a glob that matches nothing. The message names it and the working directory."""


class ConfigError(InputError):
    """A configuration with an unknown key or an impossible value."""


class MachineError(InputError, OSError):
    """A full disk, a file without permission, a killed worker: the same command may go on later."""


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """MachineError for an OSError in the block, which does nothing but read `path`."""
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        if error.errno is None:  # of gzip: what is in the file
            raise
        raise MachineError(
            f"{os.fspath(path)!r} cannot be read: {error.strerror}. Make it a readable "
            "file, or name another."
        ) from None


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """MachineError where the block, which writes `path`, meets a full disk or lacks permission."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        number = getattr(error, "errno", None)
        if os.strerror(errno.ENOSPC) in str(error):  # TensorFlow has exceptions of its own
            number = errno.ENOSPC
        if number not in _OF_THE_MACHINE:
            raise
        raise MachineError(
            f"{os.fspath(path)!r} cannot be written: {os.strerror(number)}. Make room or give "
            "permission, and give the same command again."
        ) from None
