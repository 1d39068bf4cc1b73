"""Text files, plain or compressed, read as a stream in bounded memory.

Names that end in .gz, .bz2, .xz, .zst or .zip are compressed. The files in a .zip are read in the
order of their names and never written to the disk; hidden files, those that macOS adds and symbolic
links are left out, with a note.

Lines end in LF or CRLF, and in CR alone if the file has no LF in its first 16 MiB. In other files,
CR alone ends a line of text (`TextFile.blocks`), but may be in a cell of a table (`lines`).
"""

import contextlib
import dataclasses
import os
import re
import stat
import sys
import zipfile
from collections.abc import Callable, Iterator
from typing import IO, Any

from albert_tf.runtime.errors import InputError, listed, note_once, printable
from albert_tf.runtime.files.binary_files import PEEKED_BYTES, content_problem, is_binary
from albert_tf.runtime.files.compression import (
    decompressed,
    format_of,
    is_compressed,
    is_zip,
    reading_compressed,
    stream_of,
    without_suffix,
)
from albert_tf.runtime.files.paths import require_file

MAX_LINE_BYTES = 2**24
MAX_TEXT_BYTES = 2**27  # of a file that is read as a whole: the largest SQuAD has 2**26
_BLOCK_BYTES = 2**18
_SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)  # the line before the header
_QUOTED = re.compile('"[^"]*"')
_RETURNS = re.compile(r"(?<!\r)\r++$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class TextFile:
    """A UTF-8 file, or a file in a .zip.

    Attributes:
      name: the path; of a file in a .zip, `archive.zip/name`.
      open: the function that opens the decompressed bytes.
      flag: the flag that named the file, for error messages.
      errors: the value of --errors, `strict` or `replace`; None if the command has no such flag.
    """

    name: str
    open: Callable[[], contextlib.AbstractContextManager[Any]]
    flag: str = ""
    errors: str | None = None

    def require_text(self) -> None:
        """Check that the file can be opened and begins like a text.

        Raises:
          InputError: the file is binary, damaged, or does not begin with UTF-8.
        """
        next(self._pieces(PEEKED_BYTES), None)

    def blocks(self, block_bytes: int = _BLOCK_BYTES) -> Iterator[str]:
        """Yield blocks of whole lines, which end in LF, without the last line's end.

        A line of more than `MAX_LINE_BYTES` is divided, after a blank if possible.

        Raises:
          InputError: the file is binary, damaged or not UTF-8.
        """
        noted = False
        for number, text, is_whole in self._pieces(block_bytes):
            if not (is_whole or noted):
                noted = True
                number += text.count("\n")
                print(
                    f"note: {self.name}:{number} has more than {MAX_LINE_BYTES >> 20} MiB, so it "
                    "is divided.",
                    file=sys.stderr,
                )
            text = text.removesuffix("\n")
            yield _RETURNS.sub("", text).replace("\r", "\n") if "\r" in text else text

    def lines(self, block_bytes: int = _BLOCK_BYTES) -> Iterator[tuple[int, str]]:
        """Yield the line numbers, from 1, and the lines, which keep their ends (LF in place of CR).

        Raises:
          InputError: the file is binary, damaged or not UTF-8, or a line has more than
            `MAX_LINE_BYTES`.
        """
        for number, text, is_whole in self._pieces(block_bytes):
            *lines, last = text.split("\n")
            for line in lines:
                yield number, line + "\n"
                number += 1
            if not is_whole:
                raise InputError(
                    f"{_said(self.name, self.flag)}:{number} must have at most "
                    f"{MAX_LINE_BYTES >> 20} MiB, because it is read as a whole. Divide the line."
                )
            if last:
                yield number, last

    def text(self, max_bytes: int = MAX_TEXT_BYTES) -> str:
        """Return all of the text.

        Raises:
          InputError: the file is binary, damaged or not UTF-8, or has more than `max_bytes`.
        """
        pieces, size = [], 0
        for _, text, _ in self._pieces(_BLOCK_BYTES):
            pieces.append(text)
            size += len(text.encode())
            if size > max_bytes:
                raise InputError(
                    f"{_said(self.name, self.flag)} must have at most {max_bytes >> 20} MiB, "
                    "because it is read as a whole. Divide the file."
                )
        return "".join(pieces)

    def _pieces(self, block_bytes: int) -> Iterator[tuple[int, str, bool]]:
        """Yield texts that add up to the file, each with the number of its first line.

        The third value is False if the text ends inside a line.
        """
        number, offset, rest = 1, 0, b""
        where = _said(self.name, self.flag)
        with reading_compressed(self.name, where), self.open() as stream:
            read = stream.read1 if self.name == "-" else stream.read  # takes what there is
            while block := rest + read(block_bytes):
                # As much as its last line may still have, and the line break.
                space = MAX_LINE_BYTES - (len(block) - block.rfind(b"\n") - 1)
                if space >= 0:
                    block += stream.readline(space + 1)
                if not offset and b"\r" in block and b"\n" not in block:
                    stream = stream_of(_line_feeds(block, stream))
                    read = stream.read
                    continue
                end = _end_of_piece(block)
                block, rest = block[:end], block[end:]
                text = self._decoded(block, number, offset)
                begin, number = number, number + block.count(b"\n")
                offset += len(block)
                del block  # it may be one long line
                yield begin, text, not rest

    def _decoded(self, block: bytes, number: int, offset: int) -> str:
        where = _said(self.name, self.flag)
        if not offset and (problem := content_problem(block, is_compressed(self.name))):
            raise InputError(f"{where} must be text. {problem}")
        try:
            text = block.decode("utf-8")
        except UnicodeDecodeError as error:
            number += block.count(b"\n", 0, error.start)
            where = f"{where}:{number}"
            if b"\0" in block or is_binary(block[:PEEKED_BYTES]):
                raise InputError(
                    f"{where} must be text. Received: binary data. Leave the file out, or convert "
                    "it to text."
                ) from None
            if self.errors != "replace":
                advice = ", or pass --errors=replace" if self.errors else ""
                raise InputError(
                    f"{where} must be UTF-8. Received: byte 0x{block[error.start]:02x} at offset "
                    f"{offset + error.start}. Convert the file, for example with iconv -f "
                    f"WINDOWS-1252 -t UTF-8{advice}."
                ) from None
            text = block.decode("utf-8", "replace")
        return text if offset else text.removeprefix("\ufeff")


def _line_feeds(begin: bytes, stream: IO[bytes]) -> Iterator[bytes]:
    """Yield `begin` and the rest of the stream with LF in place of CR and CRLF."""
    part = begin
    while part:
        following = stream.read(_BLOCK_BYTES)
        if following and part.endswith(b"\r"):  # may belong to a CRLF
            part, following = part[:-1], b"\r" + following
        yield part.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        part = following


def _end_of_piece(block: bytes) -> int:
    """Return where to end a piece: at the end, or inside a last line that is too long."""
    begin = block.rfind(b"\n", 0, -1) + 1
    if block.endswith(b"\n"):
        return len(block)
    limit = begin + MAX_LINE_BYTES
    if len(block) <= limit:
        return len(block)
    blank = block.rfind(b" ", begin + 1, limit) + 1
    if blank:
        return blank
    ends = range(limit, limit - 4, -1)  # a character has at most 4 bytes
    return next((end for end in ends if block[end] & 0xC0 != 0x80), limit)


def files_of(path: str, flag: str = "", errors: str | None = None) -> Iterator[TextFile]:
    """Yield the text files at a path: one, or all in a .zip; `-` is stdin.

    Each must be read before the next one is taken.

    Args:
      path: the path.
      flag: the flag that named it, for error messages.
      errors: see `TextFile`.

    Raises:
      InputNotFoundError: there is no such file.
      InputError: it is no file, or a .zip that is damaged or encrypted.
    """
    if path == "-":
        yield TextFile(path, lambda: contextlib.nullcontext(sys.stdin.buffer), flag, errors)
        return
    require_file(path, flag)
    if not is_zip(path):
        yield TextFile(path, lambda: decompressed(path, lambda: open(path, "rb")), flag, errors)
        return
    with reading_compressed(path, _said(path, flag)), zipfile.ZipFile(path) as archive:
        members = sorted(archive.infolist(), key=lambda member: member.filename)
        members = [member for member in members if not member.filename.endswith("/")]
        if others := [member.filename for member in members if _is_left_out(member)]:
            note_once(f"{path}: its hidden files and links are left out: {listed(others, 3)}.")
        for member in members:
            if _is_left_out(member):
                continue
            name = f"{path}/{printable(member.filename)}"
            if member.flag_bits & 1:
                raise InputError(
                    f"{_said(name, flag)} must not be encrypted. Unpack the archive with its "
                    "password."
                )
            opened = lambda member=member: decompressed(  # noqa: E731
                member.filename, lambda: archive.open(member)
            )
            yield TextFile(name, opened, flag, errors)


def lines_of(path: str, flag: str = "") -> Iterator[tuple[int, str]]:
    """Yield the line numbers, from 1, and lines of the only file at a path; `-` is stdin.

    The lines keep their ends.

    Raises:
      InputNotFoundError: there is no such file.
      InputError: it cannot be read (see `TextFile.lines`), or a .zip holds several files.
    """
    for file in _only(path, flag):
        yield from file.lines()


def text_of(path: str, flag: str = "") -> str:
    """Return the text of the only file at a path, as `lines_of` does its lines."""
    return "".join(file.text() for file in _only(path, flag))


def _only(path: str, flag: str) -> Iterator[TextFile]:
    count = 0
    for count, file in enumerate(files_of(path, flag), start=1):  # noqa: B007
        if (kind := format_of(file.name)) != format_of(path):
            name = os.path.splitext(without_suffix(os.path.basename(path)))[0]
            raise InputError(
                f"{_said(path, flag)} must have the extension of the file in it, {file.name}, "
                f"before its own. Rename it to {name}{kind}.zip, or unpack it."
            )
        if count == 1:
            yield file
    if count != 1:
        raise InputError(
            f"{_said(path, flag)} must hold one file. Received: {count}. Unpack it, and pass one "
            "of its files."
        )


def _is_left_out(member: zipfile.ZipInfo) -> bool:
    parts = (part for part in member.filename.split("/") if part not in (".", ".."))
    is_hidden = any(part.startswith((".", "__MACOSX")) for part in parts)
    return is_hidden or stat.S_ISLNK(member.external_attr >> 16)  # its content is a path


def _said(path: str, flag: str) -> str:
    return f"{flag}: {path}" if flag else path


def csv_separator(first: str) -> tuple[str, bool]:
    """Return the separator of a .csv by its first line, and if that line only names it.

    Excel writes `sep=;` there, or in many languages a header with semicolons.
    """
    header = first.rstrip("\r\n")
    if named := _SEPARATOR.fullmatch(header):
        return named[1], True
    bare = _QUOTED.sub("", header)
    return ";" if ";" in bare and "," not in bare else ",", False
