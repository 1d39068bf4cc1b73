"""The texts of documents, found in the blocks and lines of files."""

import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from albert_tf.runtime.files.text_files import TextFile

MAX_DOCUMENT_CHARS = 2**22
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*+\n)+")


class OpenText:
    """The text of the document that is being read, one after the other in a file.

    A document of more than `MAX_DOCUMENT_CHARS` is divided into several, at the end of a line or at
    a blank if possible, with a note for the first one.

    Args:
      name: the name of the file, for the note.
    """

    def __init__(self, name: str) -> None:
        self._name, self._noted = name, False
        self._parts: list[str] = []
        self._size = 0

    def add(self, lines: str) -> list[str]:
        """Add lines, and return the parts of the document that are now complete."""
        self._parts.append(lines)
        self._size += len(lines) + 1
        if self._size <= MAX_DOCUMENT_CHARS + 1:
            return []
        self._note()
        *complete, rest = _divided("\n".join(self._parts))
        self._parts, self._size = [rest], len(rest) + 1
        return complete

    def end(self) -> str:
        """Return the text of the document, without the parts returned before, and begin a new one.

        It is empty if nothing was added.
        """
        text = "\n".join(self._parts)
        self._parts, self._size = [], 0
        return text

    def whole(self, text: str) -> list[str]:
        """Return a whole document, divided if it is too long."""
        return [*self.add(text), self.end()]

    def _note(self) -> None:
        if not self._noted:
            print(
                f"note: {self._name} has a document of more than {MAX_DOCUMENT_CHARS:,} "
                "characters, so it is divided into several.",
                file=sys.stderr,
            )
        self._noted = True


def _divided(text: str) -> list[str]:
    parts, begin = [], 0
    while (end := begin + MAX_DOCUMENT_CHARS) < len(text):
        middle = (begin + end) // 2
        places = (text.rfind(separator, middle, end) for separator in "\n ")
        cut = next((place for place in places if place > 0), end)
        parts.append(text[begin:cut])
        begin = cut
    return [*parts, text[begin:]]


def is_blank(line: str) -> bool:
    """Return True if a line contains only white space."""
    return not line or line.isspace()


def texts_of(file: TextFile, is_boundary: Callable[[str], Any]) -> Iterator[str]:
    """Yield the texts between the boundaries of a file."""
    text = OpenText(file.name)
    for block in file.blocks():
        first, *others = _split(block, is_boundary)
        yield from text.add(first)
        for other in others:
            yield text.end().strip("\n")
            yield from text.add(other)
    yield text.end().strip("\n")


def _split(block: str, is_boundary: Callable[[str], Any]) -> list[str]:
    if is_boundary is is_blank:
        return [text.strip("\n") for text in _BLANK_LINES.split(f"\n{block}\n")]
    texts: list[list[str]] = [[]]
    for line in block.split("\n"):
        if is_boundary(line):
            texts.append([])
        else:
            texts[-1].append(line)
    return list(map("\n".join, texts))


def encodable(text: str) -> str:
    """Replace half surrogate pairs, which a string can escape and later code cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")
