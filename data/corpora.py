"""Where text comes from: `--corpus=KIND:WHERE` becomes a stream of documents made of sentences.

Kinds: text:GLOB, jsonl:GLOB, wikiextractor:GLOB, tfds:NAME, squad:FILE, race:DIR, python_docs or
python_docs:PACKAGE,PACKAGE. Files that end in .gz are read directly. The order is deterministic;
memory is bounded by the longest document (squad: by the file).
"""

import dataclasses
import glob
import gzip
import hashlib
import html
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from albert_tf import settings
from albert_tf.errors import InputError, InputNotFoundError
from data import python_docs
from data.sentences import join_lines, sentences_of, split_sentences

__all__ = [
    "Document",
    "corpus_bytes",
    "corpus_fingerprint",
    "join_lines",
    "read_documents",
    "split_sentences",
]

_GZIP_RATIO = 3  # about what text shrinks by
_MAX_DOCUMENT_CHARS = 2**29
_DOC_OPEN = re.compile(r'<doc\b(?:.*?\btitle="(.*)")?[^>]*>\s*')


@dataclasses.dataclass(frozen=True)
class Document:
    """A text whose order means something: its sentences and where it came from."""

    sentences: tuple[str, ...]  # in order, non-empty, white space normalised
    source: str  # file, or package (python_docs), or data set (tfds)


@dataclasses.dataclass(frozen=True)
class _Reading:
    where: str  # what follows KIND:
    files: list[str]
    is_boundary: Callable[[str], Any]
    errors: str
    data_dir: str | None


def read_documents(
    corpus: str,
    document_boundary: str = "blank_line",
    errors: str = "strict",
    data_dir: str | None = None,
) -> Iterator[Document]:
    """Streams the documents of a corpus; one without any sentence is left out.

    The arguments are checked at the call, the files as they are reached.

    Args:
      corpus: `KIND:WHERE`, see the module.
      document_boundary: for text: `blank_line`, `file`, or `regex:RE`: a line in which RE is found
        (anchor it with ^) starts a document and is itself dropped. Other kinds have records.
      errors: `strict` refuses a byte that is not UTF-8, `replace` writes U+FFFD for it.
      data_dir: where tfds data sets lie; None is tfds's own default.

    Raises:
      InputError: an unknown kind or option, text that cannot be read (with its place), or a corpus
        that turns out to have no document. InputNotFoundError: nothing there.
    """
    kind, where = _split_kind(corpus)
    if errors not in ("strict", "replace"):
        raise InputError(f"`errors` must be strict or replace. Received: {errors!r}.")
    is_boundary = _boundary(document_boundary)
    if kind != "text" and document_boundary != "blank_line":
        raise InputError(
            f"--document_boundary is for text: only, a record of {kind} is a document. "
            f"Received: {document_boundary!r}. Leave it out."
        )
    files = _FILES[kind](where, data_dir)
    reading = _Reading(where, files, is_boundary, errors, data_dir)
    return _never_empty(_READERS[kind](reading), corpus)


def corpus_bytes(corpus: str, data_dir: str | None = None) -> int:
    """Roughly the size of the text in bytes, from sizes on disk (.gz counts three times)."""
    kind, where = _split_kind(corpus)
    if kind == "python_docs":
        return python_docs.estimated_bytes(where)
    sizes = {name: os.path.getsize(name) for name in _FILES[kind](where, data_dir)}
    return sum(n * (_GZIP_RATIO if name.endswith(".gz") else 1) for name, n in sizes.items())


def corpus_fingerprint(corpus: str, data_dir: str | None = None) -> str:
    """16 hex digits that change with the names or the contents of the corpus's files.

    Folders are not part of it: a corpus that moves keeps its fingerprint.
    """
    kind, where = _split_kind(corpus)
    digest = hashlib.sha256(kind.encode())
    for name in _FILES[kind](where, data_dir):
        with open(name, "rb") as stream:
            content = hashlib.file_digest(stream, "sha256").digest()
        digest.update(os.path.basename(name).encode() + b"\0" + content)
    return digest.hexdigest()[:16]


def _split_kind(corpus: str) -> tuple[str, str]:
    kind, _, where = corpus.partition(":")
    if kind not in _READERS:
        valid = settings.unknown_key(kind, _READERS)
        raise InputError(f"--corpus must be KIND:WHERE, received {corpus!r}: {valid}")
    if not where and kind != "python_docs":
        raise InputError(f"--corpus must be {kind}:WHERE. Received: {corpus!r}. Add the place.")
    return kind, where


def _boundary(rule: str) -> Callable[[str], Any]:
    if rule == "blank_line":
        return lambda line: not line or line.isspace()
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
            f"Received: {rule!r}. Escape what is meant literally."
        ) from None


def _never_empty(documents: Iterator[Document], corpus: str) -> Iterator[Document]:
    found = False
    for document in documents:
        if document.sentences:
            found = True
            yield document
    if not found:
        raise InputError(f"--corpus must hold text. Received: {corpus!r}, which has no sentence.")


def _matching_files(pattern: str, data_dir: str | None = None) -> list[str]:
    pattern = os.path.expanduser(pattern)
    # A file's name may hold a glob's characters.
    names = [pattern] if os.path.isfile(pattern) else glob.glob(pattern, recursive=True)
    files = sorted(name for name in names if os.path.isfile(name))
    if not files:
        raise InputNotFoundError(
            f"--corpus: no file matches {pattern!r} in the working directory {os.getcwd()!r}. "
            "Check the path."
        )
    return files


def _race_files(folder: str, data_dir: str | None = None) -> list[str]:
    folder = glob.escape(os.path.expanduser(folder))
    return _matching_files(folder if os.path.isfile(folder) else f"{folder}/**/*.txt*")


def _tfds_builder(name: str, data_dir: str | None) -> Any:
    import tensorflow_datasets as tfds

    try:  # from files alone: neither the network nor the data set's own code
        return tfds.core.read_only_builder.builder_from_files(name, data_dir=data_dir)
    except tfds.core.registered.DatasetNotFoundError:
        where = data_dir or tfds.core.constants.DATA_DIR
        raise InputNotFoundError(
            f"--corpus=tfds:{name}: no prepared data set of that name in {where!r}, and nothing is "
            f"downloaded here. Run `tfds build {name} --data_dir={where}` first."
        ) from None


def _tfds_split(builder: Any) -> Any:
    splits = builder.info.splits
    return splits["train" if "train" in splits else sorted(splits)[0]]


def _tfds_files(name: str, data_dir: str | None) -> list[str]:
    return [str(path) for path in _tfds_split(_tfds_builder(name, data_dir)).filepaths]


def _open(name: str) -> io.BufferedReader:
    if not name.endswith(".gz"):
        return open(name, "rb")
    return io.BufferedReader(cast(Any, gzip.open(name, "rb")), 1 << 20)  # its readline is faster


def _lines(name: str, errors: str) -> Iterator[str]:
    """The lines of a UTF-8 file, decoded one by one so that an error knows its byte offset."""
    offset = 0
    try:
        with _open(name) as stream:
            for raw in stream:
                text = raw.decode("utf-8", errors)
                yield (text if offset else text.removeprefix("\ufeff")).rstrip("\r\n")
                offset += len(raw)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name} must be UTF-8. Received: byte 0x{error.object[error.start]:02x} at offset "
            f"{offset + error.start}. Convert the file, or read it with errors=replace."
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{name} must be a whole gzip file: {error}. Fetch it again.") from None


def _read_text(reading: _Reading) -> Iterator[Document]:
    for name in reading.files:
        lines: list[str] = []
        chars = 0
        for line in _lines(name, reading.errors):
            if reading.is_boundary(line):
                yield Document(sentences_of(lines), name)
                lines, chars = [], 0
                continue
            lines.append(line)
            chars += len(line)
            if chars > _MAX_DOCUMENT_CHARS:
                raise InputError(
                    f"{name} has a document of more than {_MAX_DOCUMENT_CHARS} characters. "
                    "Choose a --document_boundary that occurs in it."
                )
        yield Document(sentences_of(lines), name)


def _read_wikiextractor(reading: _Reading) -> Iterator[Document]:
    for name in reading.files:
        title: str | None = None
        lines: list[str] | None = None
        for line in _lines(name, reading.errors):
            if opening := _DOC_OPEN.fullmatch(line):
                title, lines = html.unescape(opening[1] or ""), []
            elif lines is not None and line.strip() == "</doc>":
                yield Document(sentences_of(lines), name)
                lines = None
            elif lines is not None and (lines or line.strip() not in ("", title)):
                lines.append(line)  # from behind the line that repeats the title
        if lines is not None:
            raise InputError(f"{name} must close each <doc>. The last is open: fetch it again.")


def _read_jsonl(reading: _Reading) -> Iterator[Document]:
    for name in reading.files:
        for text in _json_lines(name, "text", reading.errors):
            yield Document(sentences_of(text.split("\n")), name)


def _json_lines(name: str, key: str, errors: str) -> Iterator[str]:
    for number, line in enumerate(_lines(name, errors), start=1):
        if line.strip():
            record = _json(line, f"{name}:{number}")
            if not isinstance(record, dict) or not isinstance(record.get(key), str):
                raise InputError(
                    f"{name}:{number} must be a JSON object with text under `{key}`. "
                    f"Received: {line[:80]!r}."
                )
            # JSON can escape half a surrogate pair, which no encoder downstream could write.
            yield record[key].encode("utf-8", "replace").decode("utf-8")


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{place} must be JSON: {error}. Received: {text[:80]!r}.") from None


def _read_race(reading: _Reading) -> Iterator[Document]:
    return _passages(
        (passage, name)
        for name in reading.files
        for passage in _json_lines(name, "article", reading.errors)
    )


def _read_squad(reading: _Reading) -> Iterator[Document]:
    for name in reading.files:
        content = _json("\n".join(_lines(name, reading.errors)), name)
        try:
            texts = [p["context"] for entry in content["data"] for p in entry["paragraphs"]]
        except (KeyError, TypeError):
            raise InputError(
                f"{name} must be in SQuAD's format: data[].paragraphs[].context. Received: "
                f"{str(content)[:80]!r}."
            ) from None
        yield from _passages((text, name) for text in texts)


def _passages(texts: Iterable[tuple[str, str]]) -> Iterator[Document]:
    seen: set[bytes] = set()
    for text, name in texts:
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=12).digest()
        if digest not in seen:
            seen.add(digest)
            yield Document(sentences_of(text.split("\n")), name)


def _read_tfds(reading: _Reading) -> Iterator[Document]:
    builder = _tfds_builder(reading.where, reading.data_dir)
    features = builder.info.features
    strings = [
        key
        for key, kind in features.items()
        if type(kind).__name__ in ("Text", "Tensor") and str(kind.np_dtype) == "object"
    ]
    key = "text" if "text" in strings else next(iter(strings), None)
    if key is None:
        raise InputError(
            f"--corpus=tfds:{reading.where} must have a text feature. Received: {list(features)}."
        )
    dataset = builder.as_dataset(split=_tfds_split(builder).name, shuffle_files=False)
    for row in dataset.as_numpy_iterator():
        try:
            text = row[key].decode("utf-8", reading.errors)
        except UnicodeDecodeError as error:
            raise InputError(
                f"--corpus=tfds:{reading.where} must be UTF-8. Received: {error}. "
                "Read it with errors=replace."
            ) from None
        yield Document(sentences_of(text.split("\n")), builder.info.name)


def _read_python_docs(reading: _Reading) -> Iterator[Document]:
    for package, sentences in python_docs.docstrings(reading.where):
        yield Document(sentences, package)


_FILES: dict[str, Callable[[str, str | None], list[str]]] = {
    "text": _matching_files,
    "jsonl": _matching_files,
    "wikiextractor": _matching_files,
    "tfds": _tfds_files,
    "squad": _matching_files,
    "race": _race_files,
    "python_docs": lambda where, _: python_docs.files(where),
}
_READERS: dict[str, Callable[[_Reading], Iterator[Document]]] = {
    "text": _read_text,
    "jsonl": _read_jsonl,
    "wikiextractor": _read_wikiextractor,
    "tfds": _read_tfds,
    "squad": _read_squad,
    "race": _read_race,
    "python_docs": _read_python_docs,
}
KINDS = ", ".join(_READERS)
