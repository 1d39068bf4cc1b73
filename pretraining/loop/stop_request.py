"""Handling of signals that end a run: training finishes the current loop and saves the run."""

import contextlib
import os
import select
import signal
import sys
from types import FrameType
from typing import Self

_READER_ENDS_MS = 250  # after the signal, at most, for each of two streams
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # SIGHUP: the terminal was closed


class StopRequest:
    """A block that records the first of these signals; a second one ends the process at once.

    >>> with StopRequest() as stop:
    ...     while not stop.signal: ...
    """

    def __init__(self) -> None:
        self.signal = 0

    def __enter__(self) -> Self:
        self._previous_handlers = {
            number: signal.signal(number, self._handle)
            for number in _SIGNALS
            if signal.getsignal(number) != signal.SIG_IGN  # nohup, or a script's background job
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.signal:
            sys.exit(128 + number)
        self.signal = number
        _discard_output_without_reader()
        with contextlib.suppress(RuntimeError):  # the signal interrupted another print
            print("stop requested: saving after this loop of steps", flush=True)


def _discard_output_without_reader() -> None:
    """Redirect output whose reader the same signal ends, such as tee or the terminal."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # no file, as in a notebook
            poll = select.poll()
            poll.register(stream.fileno(), 0)
            if poll.poll(_READER_ENDS_MS):  # an error or a hang-up, which need no request
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
