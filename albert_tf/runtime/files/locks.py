"""Locks of files that a process is writing."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from typing import IO

from albert_tf.runtime.errors import InputError


def lock(file: IO[str], problem: str) -> bool:
    """Lock an open file until it is closed; the system unlocks it when the process dies.

    On a file system without locks, as some clusters have, return False.

    Raises:
      InputError: another process holds the lock; the message begins with `problem`.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _busy(problem) from None
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
            raise
        return False
    return True


@contextlib.contextmanager
def locked(path: str, mode: str, problem: str) -> Iterator[IO[str]]:
    """Open a text file that is no link and lock it, as with `lock`; mode is `r+` or `a`.

    Raises:
      InputError: another process holds the lock, or has moved or removed the folder.
      OSError: the file cannot be opened.
    """
    flags = os.O_RDWR if mode == "r+" else os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        number = os.open(path, flags | os.O_NOFOLLOW, 0o666)
    except FileNotFoundError:
        if mode == "r+":
            raise
        raise _busy(problem) from None
    with open(number, mode, encoding="utf-8", errors="replace") as file:
        lock(file, problem)
        if not (os.path.exists(path) and os.path.samestat(os.fstat(number), os.stat(path))):
            raise _busy(problem)  # it has moved or removed the folder
        yield file


def _busy(problem: str) -> InputError:
    return InputError(f"{problem}: wait for it to end or name another folder.")
