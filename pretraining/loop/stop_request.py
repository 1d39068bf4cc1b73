"""Handling of SIGTERM and Ctrl-C: training finishes the current loop and saves the run."""

import signal
import sys
from types import FrameType
from typing import Self

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """A block that records the first of these signals; a second one ends the process at once.

    >>> with StopRequest() as stop:
    ...     while not stop.signal: ...
    """

    def __init__(self) -> None:
        self.signal = 0

    def __enter__(self) -> Self:
        self._previous_handlers = {
            number: signal.signal(number, self._handle) for number in _SIGNALS
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.signal:
            sys.exit(128 + number)
        self.signal = number
        print("stop requested: saving after this loop of steps", flush=True)
