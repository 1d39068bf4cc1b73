"""How each kind of corpus becomes documents: one reader a kind, all of them streams.

Files that end in .gz are read directly. Memory is bounded by the longest document (squad: by the
file).
"""

import dataclasses
import gzip
import hashlib
import html
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from albert_tf.errors import InputError, InputNotFoundError
from data import places, python_docs
from data.batch_tokenizer import is_collapsed
from data.sentences import normalize_blanks, sentences_of

_MAX_DOCUMENT_CHARS = 2**29
_BLOCK_BYTES = 2**18
_RETURNS = re.compile(r"(?<!\r)\r++$", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*+\n)+")
_DOC_OPEN = re.compile(r'<doc\b(?:.*?\btitle="(.*)")?[^>]*>\s*')


@dataclasses.dataclass(frozen=True)
class Document:
    """A text whose order means something: its sentences and where it came from."""

    sentences: tuple[str, ...]  # in order, non-empty, white space normalised
    source: str  # file, or package (python_docs), or data set (tfds)


@dataclasses.dataclass(frozen=True)
class Reading:
    """What a reader gets: the place, already resolved to files, and the options."""

    where: str  # what follows KIND:
    files: list[str]
    is_boundary: Callable[[str], Any]  # of a line of text; `is_blank` is told faster
    errors: str
    data_dir: str | None


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
    except ValueError:  # of its parser
        raise InputError(
            "--corpus=tfds:NAME must be name, name/config or name/config:1.0.0, of letters, digits "
            f"and _. Received: {name!r}."
        ) from None


def _tfds_split(builder: Any) -> Any:
    splits = builder.info.splits
    return splits["train" if "train" in splits else sorted(splits)[0]]


def tfds_files(name: str, data_dir: str | None) -> list[str]:
    """The files of a prepared data set's train split; InputNotFoundError: there is none."""
    places.require_local(data_dir or "", "--data_dir")
    return [str(path) for path in _tfds_split(_tfds_builder(name, data_dir)).filepaths]


def _open(name: str) -> io.BufferedReader:
    if not name.endswith(".gz"):
        return open(name, "rb")
    return io.BufferedReader(cast(Any, gzip.open(name, "rb")), 1 << 20)  # its readline is faster


def _lines(name: str, errors: str) -> Iterator[str]:
    """The lines of a UTF-8 file."""
    for text in _blocks(name, errors):
        yield from text.split("\n")


def _blocks(name: str, errors: str) -> Iterator[str]:
    """Whole lines of a UTF-8 file, without the last "\\n", of which the byte offset is known."""
    offset = 0
    try:
        with _open(name) as stream:
            while block := stream.read(_BLOCK_BYTES) + stream.readline():
                text = block.decode("utf-8", errors)
                if not offset:
                    text = text.removeprefix("\ufeff")
                offset += len(block)
                del block  # may be a long line
                text = text.removesuffix("\n")
                yield _RETURNS.sub("", text) if "\r" in text else text
    except UnicodeDecodeError as error:
        raise InputError(
            f"--corpus: {name} must be UTF-8. Received: byte 0x{error.object[error.start]:02x} "
            f"at offset {offset + error.start}. Convert the file, or pass --errors=replace."
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(
            f"--corpus: {name} must be a whole gzip file: {error}. Fetch it again."
        ) from None


def is_blank(line: str) -> bool:
    """Whether a line holds nothing but white space."""
    return not line or line.isspace()


def _texts(name: str, errors: str, is_boundary: Callable[[str], Any]) -> Iterator[str]:
    """What stands between the boundaries of a file."""
    parts: list[str] = []
    for block in _blocks(name, errors):
        first, *others = _divided(block, is_boundary)
        parts.append(first)
        for other in others:
            yield "\n".join(parts).strip("\n")
            parts = [other]
        if sum(map(len, parts)) > _MAX_DOCUMENT_CHARS:
            raise InputError(
                f"--corpus: {name} has a document of more than {_MAX_DOCUMENT_CHARS} "
                "characters. Choose a --document_boundary that occurs in it."
            )
    yield "\n".join(parts).strip("\n")


def _divided(block: str, is_boundary: Callable[[str], Any]) -> list[str]:
    if is_boundary is is_blank:
        return [text.strip("\n") for text in _BLANK_LINES.split(f"\n{block}\n")]
    texts: list[list[str]] = [[]]
    for line in block.split("\n"):
        if is_boundary(line):
            texts.append([])
        else:
            texts[-1].append(line)
    return list(map("\n".join, texts))


def _read_text(reading: Reading) -> Iterator[Document]:
    for name in reading.files:
        for text in _texts(name, reading.errors, reading.is_boundary):
            yield Document(sentences_of(text), name)


def _read_sentences(reading: Reading) -> Iterator[Document]:
    for name in reading.files:
        for text in _texts(name, reading.errors, is_blank):
            yield Document(tuple(_collapsed_lines(text)), name)


def _collapsed_lines(text: str) -> list[str]:
    lines = text.split("\n")
    if not text.isascii() or not is_collapsed(text, len(lines)):
        lines = list(filter(None, map(normalize_blanks, lines)))
    return lines


def _read_wikiextractor(reading: Reading) -> Iterator[Document]:
    for name in reading.files:
        title: str | None = None
        lines: list[str] | None = None
        for line in _lines(name, reading.errors):
            if opening := _DOC_OPEN.fullmatch(line):
                title, lines = html.unescape(opening[1] or ""), []
            elif lines is not None and line.strip() == "</doc>":
                yield Document(sentences_of("\n".join(lines)), name)
                lines = None
            elif lines is not None and (lines or line.strip() not in ("", title)):
                lines.append(line)  # from behind the line that repeats the title
        if lines is not None:
            raise InputError(
                f"--corpus: {name} must close each <doc>. The last is open: fetch it again."
            )


def _read_jsonl(reading: Reading) -> Iterator[Document]:
    for name in reading.files:
        for text in _json_lines(name, "text", reading.errors):
            yield Document(sentences_of(text), name)


def _json_lines(name: str, key: str, errors: str) -> Iterator[str]:
    for number, line in enumerate(_lines(name, errors), start=1):
        if line.strip():
            record = _json(line, f"{name}:{number}")
            if not isinstance(record, dict) or not isinstance(record.get(key), str):
                raise InputError(
                    f"--corpus: {name}:{number} must be a JSON object with text under `{key}`. "
                    f"Received: {line[:80]!r}."
                )
            # JSON can escape half a surrogate pair, which no encoder downstream could write.
            yield record[key].encode("utf-8", "replace").decode("utf-8")


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"--corpus: {place} must be JSON: {error}. Received: {text[:80]!r}."
        ) from None


def _read_race(reading: Reading) -> Iterator[Document]:
    return _passages(
        (passage, name)
        for name in reading.files
        for passage in _json_lines(name, "article", reading.errors)
    )


def _read_squad(reading: Reading) -> Iterator[Document]:
    for name in reading.files:
        content = _json("\n".join(_lines(name, reading.errors)), name)
        try:
            texts = [p["context"] for entry in content["data"] for p in entry["paragraphs"]]
        except (KeyError, TypeError):
            raise InputError(
                f"--corpus: {name} must be in SQuAD's format: data[].paragraphs[].context. "
                f"Received: {str(content)[:80]!r}."
            ) from None
        yield from _passages((text, name) for text in texts)


def _passages(texts: Iterable[tuple[str, str]]) -> Iterator[Document]:
    seen: set[bytes] = set()
    for text, name in texts:
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=12).digest()
        if digest not in seen:
            seen.add(digest)
            yield Document(sentences_of(text), name)


def _read_tfds(reading: Reading) -> Iterator[Document]:
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
                "Pass --errors=replace."
            ) from None
        yield Document(sentences_of(text), builder.info.name)


def _read_python_docs(reading: Reading) -> Iterator[Document]:
    for package, sentences in python_docs.docstrings(reading.where):
        yield Document(sentences, package)


READERS: dict[str, Callable[[Reading], Iterator[Document]]] = {
    "text": _read_text,
    "sentences": _read_sentences,
    "jsonl": _read_jsonl,
    "wikiextractor": _read_wikiextractor,
    "tfds": _read_tfds,
    "squad": _read_squad,
    "race": _read_race,
    "python_docs": _read_python_docs,
}
