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


def texts_of(file: TextFile, is_boundary: Callable[[str], Any]) -> Iterator[tuple[int, str]]:
    """Yield the texts between the boundaries of a file, each with the number of its first line.

    Line breaks at the ends of a text are left out. An empty text may have any number.
    """
    text, first, number = OpenText(file.name), 0, 1  # `first` is 0 while the text is empty
    for block in file.blocks():
        for index, (offset, piece) in enumerate(_split(block, is_boundary)):
            if index:
                yield _stripped(first, text.end())
                first = 0
            if not first:
                size, piece = len(piece), piece.lstrip("\n")
                if not piece:
                    continue
                first = number + offset + size - len(piece)
            for part in text.add(piece):
                yield first, part
                first += part.count("\n")
        number += block.count("\n") + 1
    yield _stripped(first, text.end())


def _stripped(first: int, text: str) -> tuple[int, str]:
    """Return a text without the line breaks at its ends, and the number of its first line."""
    rest = text.lstrip("\n")  # a part of a divided document may begin with one
    return first + len(text) - len(rest), rest.rstrip("\n")


def _split(block: str, is_boundary: Callable[[str], Any]) -> list[tuple[int, str]]:
    """Return the texts of a block, each with the number of lines before it."""
    if is_boundary is is_blank:
        return _split_at_blank_lines(f"\n{block}\n")
    texts: list[tuple[int, list[str]]] = [(0, [])]
    for number, line in enumerate(block.split("\n"), start=1):
        if is_boundary(line):
            texts.append((number, []))
        else:
            texts[-1][1].append(line)
    return [(offset, "\n".join(lines)) for offset, lines in texts]


def _split_at_blank_lines(block: str) -> list[tuple[int, str]]:
    """Return the texts of a block that was put between line breaks, as `_split` does."""
    texts, begin, lines = [], 1, 0
    for blank in _BLANK_LINES.finditer(block):
        texts.append((lines, block[begin : blank.start()]))
        lines += block.count("\n", begin, blank.end())
        begin = blank.end()
    return [*texts, (lines, block[begin:-1])]


def encodable(text: str) -> str:
    """Replace half surrogate pairs, which a string can escape and later code cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")
