"""Lines that many documents have, such as menus and footers."""

import collections
import hashlib
from collections.abc import Iterable, Iterator

import numpy as np

_CELLS = 2**24  # at least
_BYTES_A_CELL = 256  # of text, a few lines; fewer if few documents make a line a repeated one


class RepeatedLines:
    """The lines that at least `least` documents have, found in two passes over the texts.

    The first pass counts in cells that lines may share, and the second one exactly, but only the
    lines whose cell has reached `least`. The cells take 64 MiB or, if that is more, a share of the
    text: 1 / (2 `least`), or 1 / 64 from 32 on. Each line of the second pass takes 100 bytes. White
    space at the ends of a line does not count.

    Args:
      least: the documents that have a line that is repeated.
      text_bytes: the size of all texts, about.
      cells: the least number of cells.
    """

    def __init__(self, least: int, text_bytes: int = 0, cells: int = _CELLS) -> None:
        self._least = least
        size = text_bytes // min(_BYTES_A_CELL, 8 * least)
        self._cells: np.ndarray = np.zeros(max(cells, size), np.uint32)
        self._counts = collections.Counter[int]()

    def estimate(self, texts: Iterable[str]) -> None:
        """Make the first pass."""
        for text in texts:
            np.add.at(self._cells, [key % len(self._cells) for key in _lines(text)], 1)

    def count(self, texts: Iterable[str]) -> None:
        """Make the second pass."""
        for text in texts:
            self._counts.update(
                key for key in _lines(text) if self._cells[key % len(self._cells)] >= self._least
            )

    def removed_from(self, text: str) -> tuple[str, list[str]]:
        """Return a text without these lines, and the lines."""
        lines: list[str] = []
        removed: list[str] = []
        for line in text.split("\n"):
            is_repeated = line.strip() and self._counts[_key(line)] >= self._least
            (removed if is_repeated else lines).append(line)
        return "\n".join(lines) if removed else text, removed


def _lines(text: str) -> Iterator[int]:
    """Yield the hash of each different line that is not blank."""
    yield from {_key(line): None for line in text.split("\n") if line.strip()}


def _key(line: str) -> int:
    content = line.strip().encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest())
