"""The formats of compressed files."""

import bz2
import contextlib
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, cast

from albert_tf.runtime import extras
from albert_tf.runtime.errors import DAMAGED, InputError, MachineError, reading
from albert_tf.runtime.files.binary_files import PEEKED_BYTES, is_text

ZIP = ".zip"
_BUFFER_BYTES = 2**20  # above the default, because `readline` is faster
_INPUT_BYTES = 1024  # from which zlib makes 1 MB at most and zstandard 32 MB; bz2 and lzma have a
_OUTPUT_BYTES = 2**20  # limit, because they would make gigabytes


class _ByteStream(io.RawIOBase):
    """A stream of the bytes that an iterator yields in parts."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts, self._rest = parts, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._rest = memoryview(part)
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def stream_of(parts: Iterator[bytes]) -> IO[bytes]:
    """Return a buffered stream of the bytes that an iterator yields in parts."""
    return io.BufferedReader(cast(Any, _ByteStream(parts)), _BUFFER_BYTES)


def _zstd() -> tuple[Any, type[Exception]]:
    zstandard = extras.load("zstandard", "zstd", "reading .zst files")
    return zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError


# Of each format its name, and a function that returns what makes a decompressor and its error.
_FORMATS: dict[str, tuple[str, Callable[[], tuple[Any, type[Exception]]]]] = {
    ".gz": ("gzip", lambda: (lambda: zlib.decompressobj(16 + zlib.MAX_WBITS), zlib.error)),
    ".bz2": ("bzip2", lambda: (bz2.BZ2Decompressor, OSError)),
    ".xz": ("xz", lambda: (lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), lzma.LZMAError)),
    ".zst": ("Zstandard", _zstd),
}
SUFFIXES = (*_FORMATS, ZIP)


def without_suffix(path: str) -> str:
    """Return a path without the suffix of its compression."""
    return os.path.splitext(path)[0] if is_compressed(path) else path


def format_of(path: str) -> str:
    """Return the extension before the suffix of the compression: `.csv` of `a.csv.gz`, `A.CSV`."""
    return os.path.splitext(without_suffix(path))[1].lower()


def is_compressed(path: str) -> bool:
    """Return True if the name has the suffix of a compression, in lower or upper case."""
    return _suffix(path) in SUFFIXES


def is_zip(path: str) -> bool:
    """Return True if the name is that of a .zip."""
    return _suffix(path) == ZIP


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()


@contextlib.contextmanager
def decompressed(name: str, open_raw: Callable[[], IO[bytes]]) -> Iterator[IO[bytes]]:
    """Open a file and undo the compression that its name states."""
    with open_raw() as raw:
        if (suffix := _suffix(name)) in _FORMATS:
            yield stream_of(_decompress(raw, *_FORMATS[suffix][1]()))
        elif isinstance(raw, io.BufferedReader):
            yield raw
        else:
            yield io.BufferedReader(cast(Any, raw), _BUFFER_BYTES)


def _decompress(
    stream: IO[bytes], new: Callable[[], Any], error_type: type[Exception]
) -> Iterator[bytes]:
    """Yield the content of one or several compressed streams, the last of which zeros may follow.

    The readers of Python's modules have different rules: gzip's takes an empty file for a text, and
    those of bz2 and lzma take all that follows the first stream, if it is damaged, for padding.

    Raises:
      EOFError: the file is empty, damaged or not complete, or something else follows.
    """
    data = stream.read(_INPUT_BYTES)
    if not data:
        raise EOFError("the file is empty")
    while data:
        one = new()
        limit = [_OUTPUT_BYTES] if hasattr(one, "needs_input") else []
        while not one.eof:
            if not data and getattr(one, "needs_input", True):
                data = stream.read(_INPUT_BYTES)
                if not data:
                    raise EOFError("the file ends before the end of the stream")
            try:
                part = one.decompress(data, *limit)
            except error_type:
                raise EOFError(DAMAGED) from None
            data = b""
            yield part
        data = one.unused_data.lstrip(b"\0")
        while not data and (more := stream.read(_INPUT_BYTES)):
            data = more.lstrip(b"\0")


@contextlib.contextmanager
def reading_compressed(path: str, where: str) -> Iterator[None]:
    """Turn errors in the block, which reads `path`, into an InputError or a MachineError.

    The messages begin with `where`.
    """
    try:
        with reading(path):
            yield
    except (InputError, MachineError):
        raise
    except (
        EOFError,
        OSError,  # of the formats, because `reading` has turned those of the disk
        zlib.error,
        lzma.LZMAError,
        zipfile.BadZipFile,
        UnicodeDecodeError,  # a name in a .zip
    ) as error:
        name, _ = _FORMATS.get(_suffix(path), ("zip", None))
        rule = f"{where} must be a complete {name} file"
        problem = (isinstance(error, EOFError) and str(error)) or DAMAGED
        if problem == DAMAGED and _is_plain(path):
            raise InputError(
                f"{rule}. Received: a text that is not compressed. Rename it to "
                f"{os.path.basename(without_suffix(path))}, or download it again."
            ) from None
        raise InputError(f"{rule}: {problem}. Download it again.") from None
    except NotImplementedError as error:  # a method of .zip
        raise InputError(
            f"{where} cannot be unpacked: {error}. Pack it again with another program."
        ) from None


def _is_plain(path: str) -> bool:
    """Return True if there is a file at `path`, not in a .zip, that begins like a text."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        begin = file.read(PEEKED_BYTES)
    return bool(begin) and is_text(begin)
