"""The files of a part of an index: what one call of the indexer has added.

A part is a folder with texts.bin, the passages in UTF-8 end to end; places.npy, int64 [N, 6], the
columns of `Column`; vectors.npy, float16 [N, D]; the files of `word_postings`; and part.json, which
is written last: the corpus, the files read with sizes and hashes, the sources that passages name by
number, and the size and CRC-32 of each other file.
"""

import enum
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from albert_tf.runtime.errors import InputError, reading
from albert_tf.runtime.files import outputs
from finetuning.searching import word_postings
from finetuning.searching.passages import Passage
from finetuning.searching.word_postings import WordPostings

PART, TEXTS, PLACES, VECTORS = "part.json", "texts.bin", "places.npy", "vectors.npy"
CONTENTS = (TEXTS, PLACES, VECTORS, *word_postings.FILES)
_BLOCK_BYTES = 2**20


class Column(enum.IntEnum):
    """The columns of places.npy; BEGIN and END are bytes of texts.bin, the others see `Passage`."""

    BEGIN, END, SOURCE, DOCUMENT, LINE, CHARACTER = range(6)


class IndexedFile(NamedTuple):
    """A file of a corpus as it was when it was indexed."""

    path: str  # absolute
    size: int
    sha256: str

    @staticmethod
    def of(path: str) -> "IndexedFile":
        """Return a file as it is now."""
        path = os.path.abspath(path)
        with reading(path), open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return IndexedFile(path, os.path.getsize(path), digest)


class PassageTexts:
    """The passages in a folder, in the order in which they were added; a sequence of texts."""

    def __init__(self, folder: str) -> None:
        self.places = np.load(os.path.join(folder, PLACES), mmap_mode="r")
        path = os.path.join(folder, TEXTS)
        self._bytes = np.memmap(path, np.uint8, "r") if os.path.getsize(path) else np.zeros(0, "u1")

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, row: int) -> str:
        begin, end = self.places[row, Column.BEGIN], self.places[row, Column.END]
        return self._bytes[begin:end].tobytes().decode("utf-8", "surrogatepass")

    def passage(self, row: int, sources: Sequence[str]) -> Passage:
        """Return a passage with its place."""
        _, _, source, *place = self.places[row].tolist()
        return Passage(self[row], sources[source], *place)


class IndexPart:
    """A complete part.

    Attributes:
      texts: the passages.
      vectors: their vectors, float16 [N, D], mapped from the file.
      words: the inverted index of their words.
      files: the files of the corpus.

    Raises:
      InputError: a file is missing or damaged.
    """

    def __init__(self, folder: str) -> None:
        about = _checked(folder)
        self.texts, self.words = PassageTexts(folder), WordPostings(folder)
        self.vectors = np.load(os.path.join(folder, VECTORS), mmap_mode="r")
        self.files = [IndexedFile(*row) for row in about["files"]]
        self._sources: list[str] = about["sources"]

    def __len__(self) -> int:
        return len(self.texts)

    def passage(self, row: int) -> Passage:
        """Return a passage with its place."""
        return self.texts.passage(row, self._sources)


def write_part_json(folder: str, about: dict[str, Any]) -> None:
    """Write part.json for the other files of a part, which are complete.

    `about` has the keys `corpus`, `files` and `sources`.
    """
    contents = {name: _size_and_crc(os.path.join(folder, name)) for name in CONTENTS}
    outputs.write_json(os.path.join(folder, PART), with_digest(about | {"contents": contents}))


def with_digest(values: dict[str, Any]) -> dict[str, Any]:
    """Return an object of JSON with a digest of its other values, `sha256`."""
    rest = {name: value for name, value in values.items() if name != "sha256"}
    content = json.dumps(rest, sort_keys=True).encode()
    return rest | {"sha256": hashlib.sha256(content).hexdigest()}


def read_checked(path: str, damaged: Callable[[str], InputError]) -> dict[str, Any]:
    """Return the object in a file that `with_digest` has protected.

    Raises:
      InputError: the result of `damaged`, if the file is missing or has other values.
    """
    try:
        values = outputs.read_json(path)
    except InputError as error:
        raise damaged(str(error)) from None
    if with_digest(values) != values:
        raise damaged(f"{os.path.basename(path)} was changed")
    return values


def damaged_index(folder: str) -> Callable[[str], InputError]:
    """Return a function from a reason to the error that an index, or a part of it, is damaged."""

    def error(reason: str) -> InputError:
        return InputError(
            f"--index: {folder!r} must be as it was written. Received: {reason.rstrip('.')}. Copy "
            "the index again, or build a new one."
        )

    return error


def _checked(folder: str) -> dict[str, Any]:
    damaged = damaged_index(folder)
    about = read_checked(os.path.join(folder, PART), damaged)
    for name, expected in about["contents"].items():
        path = os.path.join(folder, name)
        if not os.path.isfile(path):
            raise damaged(f"no file {name}")
        if _size_and_crc(path) != expected:
            raise damaged(f"another content of {name}")
    return about


def _size_and_crc(path: str) -> list[int]:
    crc = 0
    with reading(path), open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            crc = zlib.crc32(block, crc)
    return [os.path.getsize(path), crc]
