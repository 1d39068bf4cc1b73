"""The formats of compressed files."""

import bz2
import contextlib
import gzip
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, cast

from albert_tf.runtime.errors import InputError, MachineError, reading

ZIP = ".zip"
_BUFFER_BYTES = 2**20  # above the default, because `readline` is faster


class _ZstdFile(io.RawIOBase):
    """The decompressed content of a Zstandard stream.

    `zstandard.stream_reader` would read the first part of a truncated stream without an error.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        try:
            import zstandard
        except ImportError:
            raise InputError(
                ".zst files need the package zstandard. Run pip install '.[zstd]' in the checkout, "
                "or unpack the files."
            ) from None
        self._stream, self._error = stream, zstandard.ZstdError
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame: Any = None
        self._input, self._output = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._output:
            # 1 kB expands to 32 MB at most.
            data = self._input or self._stream.read(1024)
            if not data and self._frame:
                raise EOFError("the file ends before the end of the stream")
            if not data:
                return 0
            self._frame = self._frame or self._decompressor.decompressobj()
            try:
                self._output = memoryview(self._frame.decompress(data))
            except self._error as error:
                raise EOFError(str(error)) from None
            self._input = self._frame.unused_data
            if self._frame.eof:
                self._frame = None
        size = min(len(buffer), len(self._output))
        buffer[:size], self._output = self._output[:size], self._output[size:]
        return size


# Of each format its name, and the function that opens a compressed stream.
_FORMATS: dict[str, tuple[str, Callable[[IO[bytes]], Any]]] = {
    ".gz": ("gzip", lambda stream: gzip.GzipFile(fileobj=stream)),
    ".bz2": ("bzip2", bz2.BZ2File),
    ".xz": ("xz", lzma.LZMAFile),
    ".zst": ("Zstandard", _ZstdFile),
}
SUFFIXES = (*_FORMATS, ZIP)


def without_suffix(path: str) -> str:
    """Return a path without the suffix of its compression."""
    stem, suffix = os.path.splitext(path)
    return stem if suffix in SUFFIXES else path


def format_of(path: str) -> str:
    """Return the extension that precedes the suffix of the compression: `.csv` of `a.csv.gz`."""
    return os.path.splitext(without_suffix(path))[1]


def is_compressed(path: str) -> bool:
    """Return True if the name has the suffix of a compression."""
    return path.endswith(SUFFIXES)


@contextlib.contextmanager
def decompressed(name: str, open_raw: Callable[[], IO[bytes]]) -> Iterator[IO[bytes]]:
    """Open a file and undo the compression that its name states."""
    with contextlib.ExitStack() as stack:
        raw: Any = stack.enter_context(open_raw())
        if suffix := _suffix(name):
            raw = stack.enter_context(_FORMATS[suffix][1](raw))
        is_plain = isinstance(raw, io.BufferedReader)
        yield raw if is_plain else io.BufferedReader(cast(Any, raw), _BUFFER_BYTES)


def _suffix(name: str) -> str:
    suffix = os.path.splitext(name)[1]
    return suffix if suffix in _FORMATS else ""


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
        name = _FORMATS[_suffix(path)][0] if _suffix(path) else "zip"
        raise InputError(
            f"{where} must be a complete {name} file: {error}. Download it again."
        ) from None
    except NotImplementedError as error:  # a method of .zip
        raise InputError(
            f"{where} cannot be unpacked: {error}. Pack it again with another program."
        ) from None
