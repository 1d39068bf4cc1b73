"""Lines and blocks of text files, plain or gzipped (.gz)."""

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, cast

from albert_tf.runtime.errors import InputError, reading

_MAX_DOCUMENT_CHARS = 2**29
_BLOCK_BYTES = 2**18
_RETURNS = re.compile(r"(?<!\r)\r++$", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*+\n)+")


def _open(name: str) -> io.BufferedReader:
    if not name.endswith(".gz"):
        return open(name, "rb")
    return io.BufferedReader(cast(Any, gzip.open(name, "rb")), 1 << 20)  # its readline is faster


def lines_of(name: str, errors: str, block_bytes: int = _BLOCK_BYTES) -> Iterator[str]:
    """Yield the lines of a UTF-8 file."""
    for text in _blocks(name, errors, block_bytes):
        yield from text.split("\n")


def _blocks(name: str, errors: str, block_bytes: int = _BLOCK_BYTES) -> Iterator[str]:
    """Yield blocks of whole lines of a UTF-8 file, without the last line break.

    Error messages contain the byte offset.
    """
    offset = 0
    try:
        with reading(name), _open(name) as stream:
            while block := stream.read(block_bytes) + stream.readline():
                text = block.decode("utf-8", errors)
                if not offset:
                    text = text.removeprefix("\ufeff")
                offset += len(block)
                del block  # it may be one long line
                text = text.removesuffix("\n")
                yield _RETURNS.sub("", text) if "\r" in text else text
    except UnicodeDecodeError as error:
        raise InputError(
            f"--corpus: {name} must be UTF-8. Received: byte 0x{error.object[error.start]:02x} "
            f"at offset {offset + error.start}. Convert the file, or pass --errors=replace."
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(
            f"--corpus: {name} must be a complete gzip file: {error}. Fetch it again."
        ) from None


def is_blank(line: str) -> bool:
    """Return True if a line contains only white space."""
    return not line or line.isspace()


def texts_of(name: str, errors: str, is_boundary: Callable[[str], Any]) -> Iterator[str]:
    """Yield the texts between the boundaries of a file."""
    parts: list[str] = []
    for block in _blocks(name, errors):
        first, *others = _split(block, is_boundary)
        parts.append(first)
        for other in others:
            yield "\n".join(parts).strip("\n")
            parts = [other]
        if sum(map(len, parts)) > _MAX_DOCUMENT_CHARS:
            raise InputError(
                f"--corpus: {name} has a document of more than {_MAX_DOCUMENT_CHARS} "
                "characters. Choose a --document_boundary that occurs in it."
            )
    yield "\n".join(parts).strip("\n")


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
