"""Building an index of a corpus, and adding new files to one."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from data.corpora.corpus import NumberedCorpus, Part
from data.corpora.readers import Document
from finetuning.searching.part_files import IndexedFile
from finetuning.searching.part_writer import CHUNK, PartWriter
from finetuning.searching.passages import Passage, passages_of
from finetuning.searching.search_index import IndexSettings, SearchIndex, is_index, part_name

_WITHOUT_FILES = ("python_docs", "tfds")  # whose sources are names, and which are read as a whole
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
        return self.corpus.partition(":")[0]

    def reader(self) -> NumberedCorpus:
        """Return what reads the corpus."""
        default = "file" if self.kind in _LONG_LINES else "blank_line"
        return NumberedCorpus(
            self.corpus,
            self.document_boundary or default,
            self.errors,
            self.data_dir,
            self.text_column,
        )


@dataclasses.dataclass(frozen=True)
class IndexingResult:
    """The outcome of a call.

    Attributes:
      new_files: the files that were added, or that would be.
      old_files: those that the index had before.
      passages: the passages that were added; None in a dry run.
    """

    new_files: int
    old_files: int
    passages: int | None


def add_to_index(
    path: str,
    corpus: CorpusToIndex,
    max_words: int,
    load: Callable[[], PassageModel],
    dry_run: bool = False,
    chunk: int = CHUNK,
) -> IndexingResult:
    """Build an index, or add the files of a corpus that it does not have yet.

    An interrupted call is continued by the next one with the same arguments and files.

    Args:
      path: the index.
      corpus: the corpus.
      max_words: the most words of a passage.
      load: the function that loads the model.
      dry_run: check everything, and write nothing.
      chunk: see `PartWriter`.

    Raises:
      InputError: the corpus cannot be read or has no text, or the index is damaged, has other
        settings, or has files that were changed or removed.
    """
    index = _index_at(path)
    reader = corpus.reader()
    parts = reader.parts()
    files = [IndexedFile.of(name) for _, names in parts for name in names]
    new = _new_files(index, corpus, files) if index else files
    reader.require_text()
    model = load()
    settings = IndexSettings(model.name, model.fingerprint, model.width, max_words)
    if index:
        index.require_settings(settings)
    old_files = len(index.files) if index else 0
    if dry_run or not new:
        return IndexingResult(len(new), old_files, None if dry_run else 0)

    def passages() -> Iterator[Passage]:
        return passages_of(_documents(reader, corpus, _with_files(parts, new)), max_words)

    def write(folder: str) -> int:
        os.makedirs(folder, exist_ok=True)
        writer = PartWriter(folder, chunk)
        return writer.write(passages, model.passages, model.width, corpus.corpus, new)

    identity = repr((corpus, settings, new))
    target = os.path.join(path, part_name(len(index.parts))) if index else path
    with outputs.new_folder(target, "--output", identity) as partial:
        count = write(partial if index else os.path.join(partial, part_name(0)))
        if not index:
            settings.write(partial)
    return IndexingResult(len(new), old_files, count)


def _index_at(path: str) -> SearchIndex | None:
    """Return the index at a path, None for a path where one may be written."""
    if is_index(path):
        return SearchIndex(path)
    outputs.require_new(path)
    return None


def _new_files(
    index: SearchIndex, corpus: CorpusToIndex, files: Sequence[IndexedFile]
) -> list[IndexedFile]:
    """Return the files of a corpus that an index does not have.

    Raises:
      InputError: some that it has were changed or removed, or a corpus that is read as a whole is
        new in part.
    """
    index.require_unchanged(files)
    known = {file.path for file in index.files}
    new = [file for file in files if file.path not in known]
    if corpus.kind in _WITHOUT_FILES and 0 < len(new) < len(files):
        raise InputError(
            f"--corpus={corpus.corpus} must be all new, because it is read as a whole. Received: "
            f"{len(new):,} new files of {len(files):,}. Build a new index with another --output."
        )
    return new


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
            source = os.path.abspath(document.source)
            document = dataclasses.replace(document, source=source)
        yield document
