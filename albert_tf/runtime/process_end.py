"""How the process of a command ends: signals, the exit status, and no wait for TensorFlow."""

import atexit
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator

from albert_tf.runtime import programs

INTERRUPTED = 128 + signal.SIGINT
# The status of the command that ended, and what it raised, whose traceback keeps its variables.
_ended: list[tuple[int, BaseException | None]] = []


def exit_quietly(*_: object) -> None:
    """End the process at once, as a handler of Ctrl-C."""
    os._exit(INTERRUPTED)


def reader_left() -> int:
    """Return the exit status of a process whose reader closed the pipe, as `| head` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
    return 128 + signal.SIGPIPE


def terminate(owner: int, number: int, _: object) -> None:
    """Exit on SIGTERM or SIGHUP by an exception, so that `finally` blocks clean up."""
    if os.getpid() != owner:  # a forked worker must not clean up what its parent uses
        os._exit(128 + number)
    sys.exit(128 + number)


def repeat_signal(ignored: "sys.UnraisableHookArgs") -> None:
    """Repeat a signal that met Python in a finalizer, where exceptions are ignored."""
    numbers = {SystemExit: signal.SIGTERM, KeyboardInterrupt: signal.SIGINT}
    number = numbers.get(ignored.exc_type)
    if number is None:
        sys.__unraisablehook__(ignored)
    while number:
        # The repeated signal may come while this function still runs, in a finalizer too.
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            threading.Timer(0.01, os.kill, (os.getpid(), number)).start()
            return


@contextlib.contextmanager
def handlers_kept() -> Iterator[None]:
    """Keep the handler of SIGTERM in a block that joins processes, where libraries replace it.

    They do so below Python, which still names the old one and installs it again here.
    """
    yield
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def without_finalizers() -> Iterator[None]:
    """End the process of a command, after its exit handlers, without freeing what is left.

    Where an input pipeline of TensorFlow is left, as after SIGTERM or an error, freeing it may wait
    for a thread that wakes once a minute.
    """
    status = 1
    try:
        yield
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        raise
    finally:
        if programs.is_command():
            _ended.append((status, sys.exc_info()[1]))


@atexit.register  # among the first, since the last one runs first
def _end() -> None:
    if _ended:
        logging.shutdown()
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with contextlib.suppress(OSError, ValueError):  # closed
                stream.flush()
        os._exit(_ended[-1][0])
