"""Building an index of a corpus, and bringing one up to date."""

import dataclasses
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from albert_tf.runtime.errors import InputError, listed, reading
from albert_tf.runtime.files import outputs
from albert_tf.runtime.files.compression import format_of, is_zip
from data.corpora.corpus import NumberedCorpus, Part
from data.corpora.readers import KIND_OF, Document
from finetuning.searching.part_files import IndexedFile, PartOrigin
from finetuning.searching.part_writer import CHUNK, PartWriter
from finetuning.searching.passages import Passage, passages_of
from finetuning.searching.search_index import IndexSettings, SearchIndex, is_index, part_name

_WITHOUT_FILES = ("python_docs", "tfds")  # whose sources are names
_AS_A_WHOLE = (*_WITHOUT_FILES, "squad", "race")  # a text of an earlier file is not read again
_WITH_COLUMN = ("jsonl", "parquet", "arrow")
_LONG_LINES = ("text", "files")  # the kinds whose texts have no boundaries of their own


class PassageModel(Protocol):
    """The part of a `SearchModel` that an index needs."""

    name: str
    width: int

    @property
    def fingerprint(self) -> str:
        """A name that changes with the model."""

    def passages(self, texts: list[str]) -> np.ndarray:
        """Return vectors [N, D]."""


@dataclasses.dataclass(frozen=True)
class CorpusToIndex:
    """A corpus; the fields are those of `SearchOptions`, without a boundary by default.

    Without one, a text file is one document, so that passages may hold several paragraphs.
    """

    corpus: str
    document_boundary: str | None = None
    errors: str = "strict"
    data_dir: str | None = None
    text_column: str = "text"

    @property
    def kind(self) -> str:
        """The kind of the corpus, such as `text`."""
        return _kind_of(self.corpus)

    @property
    def boundary(self) -> str:
        """What separates documents; empty for kinds whose records are documents."""
        return self.document_boundary or ("file" if self.kind in _LONG_LINES else "")

    def reader(self) -> NumberedCorpus:
        """Return what reads the corpus."""
        return NumberedCorpus(
            self.corpus,
            self.boundary or "blank_line",
            self.errors,
            self.data_dir,
            self.text_column,
        )


class IndexingResult(NamedTuple):
    """The outcome of a call, or of a dry run.

    Attributes:
      new_files: the files that the index did not have.
      changed_files: those that it had with another content.
      removed_files: those that it had and that are no longer there.
      old_files: those that it had, changed and removed ones included.
      passages: the passages of new and changed files; None in a dry run.
    """

    new_files: int
    changed_files: int
    removed_files: int
    old_files: int
    passages: int | None


class _Changes(NamedTuple):
    """Files that differ between an index and what is there."""

    new: list[IndexedFile]
    changed: list[IndexedFile]
    removed: list[IndexedFile]


def update_index(
    path: str,
    corpus: CorpusToIndex,
    max_words: int,
    load: Callable[[], PassageModel],
    dry_run: bool = False,
    chunk: int = CHUNK,
) -> IndexingResult:
    """Build an index, or bring one up to date.

    New files of the corpus are added, and those that have changed replaced. Files of the index that
    no longer exist are dropped, of whichever corpus. An interrupted call is continued by the next
    one with the same arguments and files.

    Args:
      path: the index.
      corpus: the corpus.
      max_words: the most words of a passage.
      load: the function that loads the model.
      dry_run: check everything, and write nothing.
      chunk: see `PartWriter`.

    Raises:
      InputError: the corpus cannot be read or has no text, or the index is damaged, has other
        settings, or a corpus that is read as a whole has changed.
      MachineError: a folder cannot be read, of this corpus or of another file of the index.
    """
    index = _index_at(path)
    reader = corpus.reader()
    parts = _outside(path, reader.parts())
    files = [IndexedFile.of(name) for _, names in parts for name in names]
    changes = _changes(index, corpus, files) if index is not None else _Changes(files, [], [])
    reader.require_text(parts)
    model = load()
    settings = IndexSettings(model.name, model.fingerprint, model.width, max_words)
    if index is not None:
        index.require_settings(settings)
    new, changed, removed = map(len, changes)
    old = 0 if index is None else len(index.files)
    result = IndexingResult(new, changed, removed, old, None if dry_run else 0)
    if dry_run or not any(changes):
        return result
    origin = _origin(corpus, changes)

    def passages() -> Iterator[Passage]:
        return passages_of(_documents(reader, corpus, _with_files(parts, origin.files)), max_words)

    def write(folder: str) -> int:
        return PartWriter(folder, chunk).write(passages, model.passages, model.width, origin)

    identity = repr((corpus, settings, origin))
    target = path if index is None else os.path.join(path, part_name(len(index.parts)))
    with outputs.new_folder(target, "--output", identity, supersedes=True) as partial:
        count = write(os.path.join(partial, part_name(0)) if index is None else partial)
        if index is None:
            _require_passages(count, corpus)
            settings.write(partial)
    return result._replace(passages=count)


def _origin(corpus: CorpusToIndex, changes: _Changes) -> PartOrigin:
    read = [*changes.new, *changes.changed]
    dropped = [file.path for file in (*changes.changed, *changes.removed)]
    return PartOrigin(corpus.corpus, corpus.text_column, corpus.boundary, read, dropped)


def _outside(path: str, parts: Sequence[Part]) -> list[Part]:
    """Return the parts of a corpus without the files of an index that lies among them."""
    index = os.path.realpath(path)
    own = tuple(folder + os.sep for folder in (index, index + outputs.SUFFIX))
    return [
        (number, [name for name in names if not os.path.realpath(name).startswith(own)])
        for number, names in parts
    ]


def _require_passages(count: int, corpus: CorpusToIndex) -> None:
    if not count:
        raise InputError(
            f"--corpus must contain text. Received: {corpus.corpus!r}, whose files have no "
            "sentence. Name other files."
        )


def _kind_of(corpus: str) -> str:
    return corpus.partition(":")[0]


def _index_at(path: str) -> SearchIndex | None:
    """Return the index at a path, None for a path where one may be written."""
    if is_index(path):
        return SearchIndex(path)
    outputs.require_new(path)
    return None


def _changes(index: SearchIndex, corpus: CorpusToIndex, files: Sequence[IndexedFile]) -> _Changes:
    """Return how the files of a corpus, and those that exist, differ from those of an index.

    Raises:
      InputError: a corpus that is read as a whole was changed or removed, or is new in part, or a
        file of the index was read with other options.
      MachineError: the folder of a file of the index cannot be read.
    """
    for origin in (part.origin for part in index.parts):
        _require_same_reading(origin, corpus, files)
    known = {file.path: file for file in index.files}
    new = [file for file in files if file.path not in known]
    changed = [file for file in files if known.get(file.path, file) != file]
    removed = [file for file in known.values() if not _is_file(file.path)]
    gone = {file.path for file in (*changed, *removed)}
    for origin in (part.origin for part in index.parts):
        if _kind_of(origin.corpus) in _AS_A_WHOLE:
            _require_whole(origin.corpus, [file.path for file in origin.files if file.path in gone])
    if corpus.kind in _AS_A_WHOLE and len(new) < len(files):
        _require_whole(corpus.corpus, [file.path for file in new])
    return _Changes(new, changed, removed)


def _is_file(path: str) -> bool:
    """Return True if a file is there, False only if the file system says that none is."""
    with reading(os.path.dirname(path)):
        try:
            return stat.S_ISREG(os.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False


def _require_same_reading(
    origin: PartOrigin, corpus: CorpusToIndex, files: Sequence[IndexedFile]
) -> None:
    known = {file.path for file in origin.files}
    options = {
        "text_column": (origin.text_column, corpus.text_column, _WITH_COLUMN),
        "document_boundary": (origin.document_boundary, corpus.boundary, ("text",)),
    }
    for path in (file.path for file in files if file.path in known):
        before, kind = (_kind_of_file(_kind_of(c), path) for c in (origin.corpus, corpus.corpus))
        differing = [("corpus", origin.corpus, corpus.corpus)] if before != kind else []
        differing += [
            (option, old, new)
            for option, (old, new, kinds) in options.items()
            if kind in kinds and old != new
        ]
        for option, old, new in differing:
            raise InputError(
                f"--{option} must be as it was when {path} was indexed, {old!r}. Received: "
                f"{new!r}. Pass the same, or another --output."
            )


def _kind_of_file(kind: str, path: str) -> str:
    """Return how a corpus reads a file: as its kind or, where that leaves it open, its suffix."""
    if is_zip(path):  # which may hold files of several
        return "zip"
    suffix = format_of(path)
    return KIND_OF.get(suffix, suffix[1:]) if kind in ("files", "datasets") else kind


def _require_whole(corpus: str, differing: Sequence[str]) -> None:
    if differing:
        raise InputError(
            f"the index has --corpus={corpus}, which is read as a whole, so that its files must "
            f"stay as they are. Received: new, changed or removed files: {listed(differing, 5)}. "
            "Build a new index with another --output."
        )


def _with_files(parts: Sequence[Part], files: Sequence[IndexedFile]) -> list[Part]:
    """Return the parts of a corpus without other files."""
    wanted = {file.path for file in files}
    parts_of_files = [
        (number, [name for name in names if os.path.abspath(name) in wanted])
        for number, names in parts
    ]
    return [(number, names) for number, names in parts_of_files if names]


def _documents(
    reader: NumberedCorpus, corpus: CorpusToIndex, parts: Sequence[Part]
) -> Iterator[Document]:
    """Yield the documents, with absolute paths as sources."""
    for _, document in reader.documents(parts):
        if corpus.kind not in _WITHOUT_FILES:
            document = dataclasses.replace(document, source=_absolute(document.source))
        yield document


def _absolute(source: str) -> str:
    """Return a source with the absolute path of its file, which may be a .zip that it is in."""
    file = source
    while file and not os.path.isfile(file):
        file = os.path.dirname(file)
    return os.path.abspath(file) + source[len(file) :] if file else os.path.abspath(source)
