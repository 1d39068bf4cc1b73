"""The files of a part of an index: what one call of the indexer has changed.

A part is a folder with texts.bin, the passages in UTF-8 end to end; places.npy, int64 [N, 6], the
columns of `Column`; vectors.npy, float16 [N, D]; the files of `word_postings`; and part.json, which
is written last: the corpus, the files read with sizes and hashes, the sources that passages name by
number, the files of earlier parts whose passages it drops, and the size and CRC-32 of each other
file.
"""

import enum
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from albert_tf.runtime.errors import InputError, reading
from albert_tf.runtime.files import outputs
from albert_tf.runtime.files.paths import require_utf8
from finetuning.searching import word_postings
from finetuning.searching.passages import Passage
from finetuning.searching.word_postings import LARGE, WordPostings, load_array

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
        """Return a file as it is now.

        Raises:
          InputError: its name is not UTF-8, or it cannot be read.
        """
        path = os.path.abspath(path)
        require_utf8(path, "--corpus")
        with reading(path), open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return IndexedFile(path, os.path.getsize(path), digest)


class PartOrigin(NamedTuple):
    """Where the passages of a part come from.

    Attributes:
      corpus: `--corpus`.
      text_column: `--text_column`.
      document_boundary: `--document_boundary` or its default; empty for kinds that have none.
      files: the files that were read.
      dropped: absolute paths of files of earlier parts, which were changed or removed since.
    """

    corpus: str
    text_column: str
    document_boundary: str
    files: list[IndexedFile]
    dropped: list[str]


class PassageTexts:
    """The passages in a folder, in the order in which they were added; a sequence of texts."""

    def __init__(self, folder: str) -> None:
        self.places = load_array(os.path.join(folder, PLACES))
        path = os.path.join(folder, TEXTS)
        is_large = os.path.getsize(path) > LARGE
        self._bytes = np.memmap(path, np.uint8, "r") if is_large else np.fromfile(path, np.uint8)

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
    """A complete part, without the passages of files that a later part drops.

    Args:
      folder: the part.
      dropped: absolute paths of the files that later parts drop.

    Attributes:
      words: the inverted index of their words.
      origin: where they come from, with the files that are left.

    Raises:
      InputError: a file is missing or damaged.
    """

    def __init__(self, folder: str, dropped: Set[str] = frozenset()) -> None:
        about = _checked(folder)
        self._texts = PassageTexts(folder)
        self._sources: list[str] = about["sources"]
        hidden = [number for number, name in enumerate(self._sources) if _is_in(name, dropped)]
        is_left: np.ndarray = np.ones(len(self._texts), bool)
        if hidden:
            is_left = ~np.isin(self._texts.places[:, Column.SOURCE], hidden)
        self._rows = np.flatnonzero(is_left)
        self.words = WordPostings(folder, is_left)
        self._vectors = load_array(os.path.join(folder, VECTORS))
        files = [IndexedFile(*row) for row in about["files"] if row[0] not in dropped]
        given = {name: about[name] for name in PartOrigin._fields}
        self.origin = PartOrigin(**given | {"files": files})

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def vectors(self) -> np.ndarray:
        """The vectors, float16 [N, D]: those of the file, or a copy if some are not left."""
        has_all = len(self._rows) == len(self._vectors)
        return self._vectors if has_all else self._vectors[self._rows]

    def passage(self, row: int) -> Passage:
        """Return a passage with its place."""
        return self._texts.passage(int(self._rows[row]), self._sources)


def write_part_json(folder: str, origin: PartOrigin, sources: Sequence[str]) -> None:
    """Write part.json for the other files of a part, which are complete."""
    contents = {name: _size_and_crc(os.path.join(folder, name)) for name in CONTENTS}
    about = {**origin._asdict(), "sources": sources, "contents": contents}
    outputs.write_json(os.path.join(folder, PART), with_digest(about))


def _is_in(source: str, paths: Set[str]) -> bool:
    """Return True if a source is one of the files, or is in one that is a .zip."""
    while source not in paths:
        parent = os.path.dirname(source)
        if parent == source:
            return False
        source = parent
    return True


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
