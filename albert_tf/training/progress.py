"""Progress of long tasks: a bar with an ETA on a terminal, elsewhere a plain line at intervals."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import Self

from tqdm import tqdm

LINE_EVERY_S = 15.0


class Progress:
    """A counter of completed units, out of `total` if it is known.

    >>> with Progress("steps", 1000) as progress:
    ...     progress.advance(10, note="loss 5.3")
    """

    def __init__(self, unit: str, total: int | None = None, done: int = 0) -> None:
        self.unit, self.total, self.done = unit, total, done
        self._start_done, self._start = done, time.monotonic()
        self._last_line = self._start
        terminal = getattr(sys.stderr, "isatty", bool)()  # a service may have replaced it
        self._bar = tqdm(total=total, initial=done, unit=f" {unit}") if terminal else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, count: int, note: str = "") -> None:
        """Add `count` units, up to the total, which may be an estimate that is too low.

        `note` is shown next to the bar or in the next line.
        """
        if self.total is not None:
            count = min(count, self.total - self.done)
        self.done += count
        if self._bar is not None:
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(count)
        elif time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._last_line = time.monotonic()
            print(self._line(note), file=sys.stderr, flush=True)

    def _line(self, note: str) -> str:
        rate = (self.done - self._start_done) / max(1e-9, time.monotonic() - self._start)
        total = f"/{self.total:,}" if self.total else ""
        eta = f", {(self.total - self.done) / rate:.0f} s left" if self.total and rate else ""
        speed = f"{1 / rate:,.0f} s each" if 0 < rate < 0.1 else f"{rate:,.1f}/s"
        return f"{self.done:,}{total} {self.unit} ({speed}{eta}) {note}".rstrip()


@contextlib.contextmanager
def printing_if(is_chief: bool) -> Iterator[None]:
    """Discard what the block prints, unless this process is the chief of several workers."""
    with open(os.devnull, "w") as nowhere:
        with contextlib.nullcontext() if is_chief else contextlib.redirect_stdout(nowhere):
            yield
