"""Corpora: `--corpus=KIND:WHERE` becomes a stream of documents, each with its sentences.

Kinds: text:GLOB, sentences:GLOB, jsonl:GLOB, wikiextractor:GLOB, parquet:GLOB, arrow:GLOB,
datasets:DIR, markdown:GLOB, html:GLOB, files:GLOB, tfds:NAME, squad:FILE, race:DIR, python_docs or
python_docs:PACKAGE,PACKAGE. `sentences` is the input format of Google's and Model Garden's tools:
one sentence per line, and a blank line between documents. `datasets` is a folder that Hugging
Face's `save_to_disk` has written. `files` reads each file by its suffix. Compressed files are read
directly, and each file in a .zip like one of its own. The order is deterministic, and memory is
bounded.
"""

import dataclasses
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any

from albert_tf.runtime.bounds import Bounded, one_of
from albert_tf.runtime.errors import InputError, reading
from albert_tf.runtime.files import arrow_files
from albert_tf.runtime.files.compression import format_of, is_compressed
from data.corpora import python_docs
from data.corpora.arrow_tables import require_texts
from data.corpora.locating import FILES
from data.corpora.readers import (
    READERS,
    CorpusSource,
    Document,
    reader_of,
)
from data.corpora.texts import is_blank
from data.records import locations

KINDS = ", ".join(READERS)  # for help texts
_COMPRESSION_RATIO = 3  # approximate ratio for text
_TABLES = ("parquet", "arrow", "datasets")
_TEXTS_BY_FILE = ("text", "sentences", "jsonl", "wikiextractor", "markdown", "html", "files")
_READ_BY_FILE = (*_TEXTS_BY_FILE, *_TABLES)
_TEXT_KINDS = (*_READ_BY_FILE, "squad", "race")
_WITH_BOUNDARY = ("text", "files")
_WITH_COLUMN = ("jsonl", "files", *_TABLES)

Part = tuple[int, list[str]]  # the number of a part in the corpus, and its files


def read_documents(
    corpus: str,
    document_boundary: str = "blank_line",
    errors: str = "strict",
    data_dir: str | None = None,
    text_column: str = "text",
) -> Iterator[Document]:
    """Stream the documents of a corpus, without those that have no sentence.

    The arguments are checked at the call, and each file when it is reached.

    Args:
      corpus: `KIND:WHERE`, as described in the module's docstring.
      document_boundary: for text: `blank_line`, `file` or `regex:RE`. A line in which RE is found
        (anchor it with ^) starts a document and is dropped. Other kinds store documents as records.
      errors: `strict` rejects bytes that are not UTF-8; `replace` replaces them with U+FFFD.
      data_dir: data folder of TFDS; None means TFDS's default.
      text_column: the key or column of the text in JSON lines, parquet and Arrow files.

    Raises:
      InputError: the kind or an option is unknown, text cannot be read (the message contains the
        position), or the corpus has no document.
      InputNotFoundError: nothing exists at WHERE.
    """
    numbered = NumberedCorpus(corpus, document_boundary, errors, data_dir, text_column)
    documents = (document for _, document in numbered.documents(numbered.parts()))
    return _require_sentences(documents, corpus)


def corpus_bytes(corpus: str, data_dir: str | None = None) -> int:
    """Return the approximate size of the text in bytes: three times that of compressed files."""
    kind, location = _split_kind(corpus)
    if kind == "python_docs":
        return python_docs.estimated_bytes(location)
    sizes = {name: os.path.getsize(name) for name in FILES[kind](location, data_dir)}
    return sum(n * (_COMPRESSION_RATIO if is_compressed(name) else 1) for name, n in sizes.items())


def corpus_fingerprint(corpus: str, data_dir: str | None = None) -> str:
    """Return 16 hex digits that change with the names or the contents of the corpus's files.

    Folder names do not count, so that a corpus keeps its fingerprint when it is moved.
    """
    kind, location = _split_kind(corpus)
    digest = hashlib.sha256(kind.encode())
    for name in FILES[kind](location, data_dir):
        with reading(name), open(name, "rb") as stream:
            content = hashlib.file_digest(stream, "sha256").digest()
        digest.update(os.fsencode(os.path.basename(name)) + b"\0" + content)
    return digest.hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class NumberedCorpus(Bounded):
    """A corpus in parts that can be read separately without changing the numbers of documents.

    A part is a file. tfds is one part, and so are the kinds that skip passages of earlier files
    (python_docs, squad, race). The fields are those of `BuildOptions`.

    Raises:
      InputError: a field is invalid.
    """

    KEY = "--{}"

    corpus: str
    document_boundary: str
    errors: Annotated[str, one_of("strict", "replace")]
    data_dir: str | None
    text_column: str = "text"

    def __post_init__(self) -> None:
        super().__post_init__()
        kind, _ = _split_kind(self.corpus)
        _boundary(self.document_boundary)
        if kind not in _WITH_BOUNDARY and self.document_boundary != "blank_line":
            raise InputError(
                f"--document_boundary applies only to the kinds {', '.join(_WITH_BOUNDARY)}, "
                f"because each record of {kind} is a document. Received: "
                f"{self.document_boundary!r}. Leave it out."
            )
        if kind not in _WITH_COLUMN and self.text_column != "text":
            raise InputError(
                f"--text_column applies only to the kinds {', '.join(_WITH_COLUMN)}. Received: "
                f"{self.text_column!r}, beside --corpus={kind}. Leave it out."
            )

    def require_text(self, parts: Iterable[Part] | None = None) -> None:
        """Check that each file can be opened and begins like a text, before the work begins.

        Args:
          parts: the parts to check; by default all.

        Raises:
          InputError: a file is binary, damaged or encrypted.
          InputNotFoundError: nothing exists at WHERE.
        """
        kind, location = _split_kind(self.corpus)
        if kind in _TEXT_KINDS:
            files = [name for _, names in parts or self.parts() for name in names]
            is_table = [kind in _TABLES or format_of(name) in arrow_files.FORMATS for name in files]
            for name in itertools.compress(files, is_table):
                require_texts(name, self.text_column)
            texts = [
                name for name, holds_table in zip(files, is_table, strict=True) if not holds_table
            ]
            for file in self._source(location, texts).text_files():
                if kind != "files" or reader_of(file.name):  # a .zip has others
                    file.require_text()

    def _source(self, location: str, files: list[str]) -> CorpusSource:
        is_boundary = _boundary(self.document_boundary)
        return CorpusSource(
            location, files, is_boundary, self.errors, self.data_dir, self.text_column
        )

    def parts(self) -> list[Part]:
        """Return the parts, in order."""
        kind, location = _split_kind(self.corpus)
        files = FILES[kind](location, self.data_dir)
        groups = [[name] for name in files] if kind in _READ_BY_FILE else [files]
        return list(enumerate(groups))

    def documents(self, parts: Iterable[Part]) -> Iterator[tuple[int, Document]]:
        """Yield numbered documents: the upper 32 bits are the part, the lower ones count within it.

        Documents that are all white space are skipped, but others without a sentence get a number.
        So numbering only has to read the files; finding sentences, which takes longer, is left to
        the caller.
        """
        kind, location = _split_kind(self.corpus)
        for part, files in parts:
            documents = READERS[kind](self._source(location, files))
            nonblank_documents = (document for document in documents if not is_blank(document.text))
            yield from enumerate(nonblank_documents, part << 32)


def has_boundary(corpus: str) -> bool:
    """Return True if `document_boundary` says where the documents of a corpus begin."""
    return corpus.partition(":")[0] in _WITH_BOUNDARY


def _split_kind(corpus: str) -> tuple[str, str]:
    kind, _, location = corpus.partition(":")
    if kind not in READERS:
        raise InputError(
            f"--corpus must be KIND:WHERE, such as text:'corpus/*.txt', where KIND is one of "
            f"{KINDS}. Received: {corpus!r}."
        )
    if not location and kind != "python_docs":
        raise InputError(f"--corpus must be {kind}:WHERE. Received: {corpus!r}. Add the location.")
    locations.require_local(location, "--corpus")
    return kind, location


def _boundary(rule: str) -> Callable[[str], Any]:
    if rule == "blank_line":
        return is_blank
    if rule == "file":
        return lambda line: False
    kind, colon, expression = rule.partition(":")
    if kind != "regex" or not colon:
        raise InputError(
            f"--document_boundary must be blank_line, file or regex:RE. Received: {rule!r}."
        )
    try:
        return re.compile(expression).search
    except re.error as error:
        raise InputError(
            f"--document_boundary=regex:RE must be a regular expression: {error}. "
            f"Received: {rule!r}. Escape literal characters."
        ) from None


def _require_sentences(documents: Iterator[Document], corpus: str) -> Iterator[Document]:
    has_sentences = False
    for document in documents:
        if document.sentences:
            has_sentences = True
            yield document
    if not has_sentences:
        raise InputError(
            f"--corpus must contain text. Received: {corpus!r}, which has no sentence."
        )


def digest_of(document: Document) -> bytes:
    """Return 8 bytes that depend only on the document's sentences."""
    return hashlib.blake2b("\n".join(document.sentences).encode(), digest_size=8).digest()


def split_of(document: Document, heldout_fraction: float) -> str:
    """Return `heldout` for about `heldout_fraction` of all documents, else `train`.

    This depends only on the text, so that copies of a document are in the same split, in every
    corpus and build.
    """
    digest = int.from_bytes(digest_of(document))
    return "heldout" if digest < heldout_fraction * 2**64 else "train"
