"""Readers that stream the documents of each kind of corpus.

Memory is bounded: longer documents are divided, and a longer file of squad is refused.
"""

import dataclasses
import functools
import hashlib
import html
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from albert_tf.runtime.errors import InputError, listed, note_once
from albert_tf.runtime.files import arrow_files
from albert_tf.runtime.files.compression import format_of
from albert_tf.runtime.files.json_text import parse_json
from albert_tf.runtime.files.text_files import TextFile, files_of
from albert_tf.text.normalization import is_collapsed
from data.corpora import python_docs
from data.corpora.arrow_tables import table_texts
from data.corpora.markup import html_text, markdown_text
from data.corpora.sentences import normalize_blanks, sentences_of
from data.corpora.texts import OpenText, is_blank, texts_of
from data.corpora.tfds_texts import tfds_texts

_DOC, _TITLE = re.compile(r"<doc\b"), re.compile(r'\btitle="')


@dataclasses.dataclass(frozen=True)
class Document:
    """A text whose sentence order is meaningful, and its source."""

    text: str  # as read
    source: str  # file, package (python_docs) or dataset (tfds)
    splitter: Callable[[str], Iterable[str]] = sentences_of
    line: int = dataclasses.field(default=0, compare=False)  # where it begins; 0 if unknown
    keeps_lines: bool = dataclasses.field(default=False, compare=False)  # breaks are the file's

    @functools.cached_property
    def sentences(self) -> tuple[str, ...]:
        """The sentences in order, non-empty, white space normalized; computed on first access."""
        return tuple(self.splitter(self.text))


@dataclasses.dataclass(frozen=True)
class CorpusSource:
    """The input of a reader: the location, already resolved to files, and the options."""

    location: str  # what follows KIND:
    files: list[str]
    is_boundary: Callable[[str], Any]  # tests a line of text; `is_blank` has a fast path
    errors: str
    data_dir: str | None
    text_column: str = "text"  # of JSON lines and tables

    def text_files(self) -> Iterator[TextFile]:
        """Yield the files, and those in .zip files, each of which must be read before the next."""
        for path in self.files:
            yield from files_of(path, "--corpus", self.errors)


FileReader = Callable[[TextFile, CorpusSource], Iterator[Document]]


def _of_each_file(read: FileReader) -> Callable[[CorpusSource], Iterator[Document]]:
    """Return the reader of a kind whose files are read one after the other."""
    return lambda source: itertools.chain.from_iterable(
        read(file, source) for file in source.text_files()
    )


def _read_text(file: TextFile, source: CorpusSource) -> Iterator[Document]:
    for line, text in texts_of(file, source.is_boundary):
        yield Document(text, file.name, line=line, keeps_lines=True)


def _read_markdown(file: TextFile, source: CorpusSource) -> Iterator[Document]:
    yield from _whole(markdown_text(file.text()), file)


def _read_html(file: TextFile, source: CorpusSource) -> Iterator[Document]:
    text = html_text(file.text())
    if is_blank(text):
        print(f"note: {file.name} has no main text, so it is left out.", file=sys.stderr)
    yield from _whole(text, file)


def _whole(text: str, file: TextFile) -> Iterator[Document]:
    for part in OpenText(file.name).whole(text):
        yield Document(part, file.name)


def _read_sentences(source: CorpusSource) -> Iterator[Document]:
    for file in source.text_files():
        for line, text in texts_of(file, is_blank):
            yield Document(text, file.name, _collapsed_lines, line, keeps_lines=True)


def _collapsed_lines(text: str) -> list[str]:
    lines = text.split("\n")
    if not text.isascii() or not is_collapsed(text, len(lines)):
        lines = list(filter(None, map(normalize_blanks, lines)))
    return lines


def _read_wikiextractor(source: CorpusSource) -> Iterator[Document]:
    for file in source.text_files():
        name, text = file.name, OpenText(file.name)
        title, opened = "", 0  # line number of the open <doc>, from 1; 0 if none is open
        has_lines = False
        lines = (line for block in file.blocks() for line in block.split("\n"))
        for number, line in enumerate(lines, start=1):
            if (opening := _title(line)) is not None:
                _require_closed(name, opened)
                title, opened, has_lines = html.unescape(opening), number, False
            elif not opened:
                _require_blank(line, f"{name}:{number}")
            elif line.strip() == "</doc>":
                yield Document(text.end(), name)
                opened = 0
            elif has_lines or _unescaped(line).strip() not in ("", title):
                has_lines = True  # skips leading blank lines and the repeated title
                for part in text.add(_unescaped(line)):
                    yield Document(part, name)
        _require_closed(name, opened)


def _unescaped(line: str) -> str:
    """Undo what WikiExtractor does to text, `html.escape` of all but quotes."""
    return line.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _title(line: str) -> str | None:
    """Return the title in a line that opens a document, None for any other line.

    A title may hold quotes and angle brackets. The time is linear in the line.
    """
    if not _DOC.match(line) or not (line := line.rstrip()).endswith(">"):
        return None
    if begin := _TITLE.search(line):
        title, quote, rest = line[begin.end() :].rpartition('"')
        if quote and rest.index(">") == len(rest) - 1:
            return title
    return "" if line.index(">") == len(line) - 1 else None


def _require_blank(line: str, location: str) -> None:
    if not is_blank(line):
        raise InputError(
            f"--corpus: {location} must be between <doc> and </doc>. Received: {line[:80]!r}. "
            "For the output of WikiExtractor --json, use jsonl:."
        )


def _require_closed(name: str, opened: int) -> None:
    if opened:
        raise InputError(
            f"--corpus: {name}:{opened} opens a <doc> that must be closed before the next one and "
            "the end of the file. Received: no </doc>. Fetch the file again."
        )


def _read_jsonl(file: TextFile, source: CorpusSource) -> Iterator[Document]:
    open_text = OpenText(file.name)
    for line, text in _json_lines(file, source.text_column, "--text_column"):
        for part in open_text.whole(text):
            yield Document(part, file.name, line=line)


def _read_tables(source: CorpusSource) -> Iterator[Document]:
    for path in source.files:
        open_text = OpenText(path)
        for text in table_texts(path, source.text_column):
            for part in open_text.whole(text):
                yield Document(part, path)


def _read_files(source: CorpusSource) -> Iterator[Document]:
    """Read each file by the suffix of its name."""
    for path in source.files:
        one = dataclasses.replace(source, files=[path])
        if format_of(path) in arrow_files.FORMATS:
            yield from _read_tables(one)
            continue
        for file in one.text_files():
            if read := reader_of(file.name):
                yield from read(file, source)


def _json_lines(file: TextFile, key: str, flag: str = "") -> Iterator[tuple[int, str]]:
    """Yield the numbers of the lines, from 1, and the text of each."""
    for number, line in file.lines():
        if line := line.strip():
            record = parse_json(line, f"--corpus: {file.name}:{number}", errors=file.errors)
            if not isinstance(record, dict) or not isinstance(record.get(key), str):
                advice = f" Pass {flag} if the text has another key." if flag else ""
                raise InputError(
                    f"--corpus: {file.name}:{number} must be a JSON object with text under "
                    f"`{key}`. Received: {line[:80]!r}.{advice}"
                )
            yield number, record[key]


def _read_race(source: CorpusSource) -> Iterator[Document]:
    return _passages(
        (passage, file.name)
        for file in source.text_files()
        for _, passage in _json_lines(file, "article")
    )


def _read_squad(source: CorpusSource) -> Iterator[Document]:
    return _passages(
        (context, file.name) for file in source.text_files() for context in _contexts(file)
    )


def _contexts(file: TextFile) -> list[str]:
    text = file.text()
    content = parse_json(text, f"--corpus: {file.name}", errors=file.errors)
    try:
        contexts = [p["context"] for entry in content["data"] for p in entry["paragraphs"]]
        if not all(isinstance(context, str) for context in contexts):
            raise TypeError
    except (KeyError, TypeError):
        raise InputError(
            f"--corpus: {file.name} must be in SQuAD's format: data[].paragraphs[].context. "
            f"Received: {str(content)[:80]!r}."
        ) from None
    return contexts


def _passages(texts: Iterable[tuple[str, str]]) -> Iterator[Document]:
    seen: set[bytes] = set()
    for text, name in texts:
        digest = hashlib.blake2b(text.encode(), digest_size=12).digest()
        if digest not in seen:
            seen.add(digest)
            for part in OpenText(name).whole(text):
                yield Document(part, name)


def _read_tfds(source: CorpusSource) -> Iterator[Document]:
    open_text = None
    for name, text in tfds_texts(source.location, source.data_dir, source.errors):
        open_text = open_text or OpenText(name)
        for part in open_text.whole(text):
            yield Document(part, name)


def _read_python_docs(source: CorpusSource) -> Iterator[Document]:
    for package, sentences in python_docs.docstrings(source.location):
        yield Document("\n".join(sentences), package, _collapsed_lines)


_FILE_READERS: dict[str, FileReader] = {
    "text": _read_text,
    "jsonl": _read_jsonl,
    "markdown": _read_markdown,
    "html": _read_html,
}
# Suffix -> how kind `files` reads a file; those of tables are in `arrow_files`.
KIND_OF = {
    ".txt": "text",
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    **dict.fromkeys((".md", ".markdown"), "markdown"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
}
SUFFIXES = (*KIND_OF, *arrow_files.FORMATS)
DOCUMENTS = (".pdf", ".doc", ".docx", ".odt", ".epub", ".rtf")  # hold text that is not read


def reader_of(name: str) -> FileReader | None:
    """Return the reader of a text file of kind `files`, by the suffix of its name.

    Other files inside a .zip have none, with a note for each suffix.

    Raises:
      InputError: a .zip holds a document or a table, which is not read there.
    """
    suffix = format_of(name)
    if suffix in (*DOCUMENTS, *arrow_files.FORMATS):
        raise InputError(
            f"--corpus: {name} cannot be read inside a .zip. Unpack it, and convert documents to "
            "text (a PDF with pdftotext)."
        )
    if suffix not in KIND_OF:
        note_once(f"--corpus: files of a .zip that end in {suffix!r} are left out.")
        return None
    return _FILE_READERS[KIND_OF[suffix]]


def unknown_suffix(path: str) -> str:
    """Return the message on a file that kind `files` cannot read."""
    return (
        f"{path} must end in {listed(SUFFIXES, len(SUFFIXES))}, which say how a file is read. "
        "Convert it to text (a PDF with pdftotext), or leave it out with another glob."
    )


READERS: dict[str, Callable[[CorpusSource], Iterator[Document]]] = {
    **{kind: _of_each_file(reader) for kind, reader in _FILE_READERS.items()},
    "sentences": _read_sentences,
    "parquet": _read_tables,
    "arrow": _read_tables,
    "datasets": _read_tables,
    "files": _read_files,
    "wikiextractor": _read_wikiextractor,
    "tfds": _read_tfds,
    "squad": _read_squad,
    "race": _read_race,
    "python_docs": _read_python_docs,
}
