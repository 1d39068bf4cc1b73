"""Reader of labeled tokens in CoNLL columns, plain or compressed.

Each line is a token with its tag, and a blank line ends a sentence.
"""

import collections
import dataclasses
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files.compression import format_of
from albert_tf.runtime.files.text_files import lines_of
from finetuning.datasets.dataset import Reading
from finetuning.datasets.tables.other_layouts import require_columns

CONLL = (".conll", ".conllu", ".bio", ".txt", ".tsv")
_PEEKED_LINES = 100  # from which the separator and the number of columns are inferred
_LONG_SENTENCE = 100  # tokens; a longer one is due a note if it is the whole file
_MAX_IDS = 0.95  # the share of tokens that may look like numbers or names of documents
_BLANKS = " \t\r\n"  # other white space, such as U+00A0, may be a token or in one
# What lies between runs of spaces and tabs, or between runs of spaces, by separator.
_BETWEEN_RUNS = {"": re.compile(r"[^ \t]+"), " ": re.compile("[^ ]+")}
_COMMENT = re.compile(r"#\s*\w+\s*=|# newdoc")  # as in CoNLL-U; before a sentence's first token
_RANGE = re.compile(r"\d+[-.]\d+")  # the numbers of several words, or of an empty node
_TAG = re.compile(r"O|[BIESLUM]-\S+")


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence of CoNLL columns.

    Attributes:
      lines: the number of each token's line in the file, or that of a text without tokens.
      tokens: the tokens.
      tags: their tags; None if the file has no column for them.
      document: the number of its document in the file.
      id: its name, if it has one.
    """

    lines: tuple[int, ...]
    tokens: tuple[str, ...]
    tags: tuple[str, ...] | None
    document: int = 0
    id: Any = ""


def read_conll(path: str, reading: Reading) -> list[Sentence]:
    """Return the sentences of a file of CoNLL columns.

    Tabs separate the columns if most lines have one, otherwise runs of spaces and tabs, unless the
    reading names a separator. By default the token is the first column and the tag the last one; in
    .conllu files they are FORM and UPOS, where `_` is no tag. A blank line and -DOCSTART- end a
    sentence. Lines that begin with # and have another number of columns than tokens are comments,
    and so are `# key = value` before a sentence and all those of .conllu files, whose ranges and
    empty nodes are skipped.

    Raises:
      InputError: a line has another number of columns than most, or an empty token or tag, or there
        are no tokens, or they look like ids, or the file has another layout.
    """
    is_conllu = format_of(path) == ".conllu"
    lines = lines_of(path)
    peeked = list(itertools.islice(lines, _PEEKED_LINES))
    texts = [line for _, line in peeked if not _ends_sentence(line)]
    require_columns(path, texts)
    tokens = [line for line in texts if not line.startswith("#")]
    separator = _separator(reading, tokens or texts)
    counts = collections.Counter(len(_cells(line, separator)) for line in tokens or texts)
    expected = max(counts, key=counts.__getitem__, default=0)
    columns = _columns(path, reading, is_conllu)
    sentences: list[Sentence] = []
    sentence = _OpenSentence(path)
    for number, line in itertools.chain(peeked, lines):
        if line.startswith(("-DOCSTART-", "# newdoc")):
            sentences += sentence.ended()
            sentence.document += 1
        if _ends_sentence(line):
            sentences += sentence.ended()
            continue
        cells = _cells(line, separator)
        has_other_columns = len(cells) != expected or (separator in _BETWEEN_RUNS and "\t" in line)
        is_comment = sentence.is_empty and _COMMENT.match(line)
        if line.startswith("#") and (is_conllu or has_other_columns or is_comment):
            continue
        if is_conllu and _RANGE.fullmatch(cells[0]):
            continue
        if len(cells) != expected:
            raise InputError(
                f"{path}:{number}: {_count(cells)}, separated by {_name(separator)}; most lines "
                f"have {expected}. Correct the line, or pass another --column_separator, such as "
                "' ' (spaces only) or '\\t'."
            )
        sentence.add(number, cells, columns)
    sentences += sentence.ended()
    if not sentences:
        raise InputError(f"{path} holds no tokens. Write a token and its tag on each line.")
    if not (is_conllu or reading.text_column):  # another column may have the words
        if expected > 2:
            _require_words(path, sentences, columns[0])
        _require_no_tags(path, sentences, expected)
    _note_long_sentence(path, sentences)
    if is_conllu:
        sentences = [_without_underscores(sentence) for sentence in sentences]
    return sentences


def _require_words(path: str, sentences: Sequence[Sentence], column: int) -> None:
    """Check that the tokens of a column are not numbers or names of words or documents."""
    tokens = [token for sentence in sentences for token in sentence.tokens]
    pairs = [pair for sentence in sentences for pair in itertools.pairwise(sentence.tokens)]
    for hits, count, what in (
        (sum(any(map(str.isdecimal, token)) for token in tokens), len(tokens), "with a digit"),
        (sum(one == other for one, other in pairs), len(pairs), "that repeat the one before"),
    ):
        if count > 1 and hits > _MAX_IDS * count:
            raise InputError(
                f"{path}: the column of the tokens must hold words. Received: {tokens[0]!r} and "
                f"others, {hits:,} of {count:,} {what}, as ids of words and documents are. Pass "
                "--text_column, the number of the words' column counted from 0, such as "
                f"--text_column={column + 1}, or --text_column={column} if they are the words."
            )


def _require_no_tags(path: str, sentences: Sequence[Sentence], num_columns: int) -> None:
    """Check that the tokens of the first column are not all tags, some of them of spans."""
    tokens = [token for each in sentences for token in each.tokens]
    if num_columns > 1 and all(map(_TAG.fullmatch, tokens)) and set(tokens) != {"O"}:
        raise InputError(
            f"{path}: the column of the tokens must hold words. Received: tags alone, such as "
            f"{next(token for token in tokens if token != 'O')!r}. Pass --text_column=1 "
            "--label_column=0 if the tags are in the first column."
        )


def _note_long_sentence(path: str, sentences: Sequence[Sentence]) -> None:
    if len(sentences) == 1 and len(sentences[0].tokens) > _LONG_SENTENCE:
        print(
            f"note: {path} is one sentence of {len(sentences[0].tokens):,} tokens. Put a blank "
            "line after each sentence.",
            file=sys.stderr,
        )


def _ends_sentence(line: str) -> bool:
    return not line.strip(_BLANKS) or line.startswith("-DOCSTART-")


def _separator(reading: Reading, texts: Sequence[str]) -> str:
    """Return the separator of the columns: "" for runs of spaces and tabs, " " for runs of spaces.

    Any other separator stands once between two columns.
    """
    given = reading.column_separator.replace("\\t", "\t")
    if given:
        return given if given.strip(" ") else " "
    return "\t" if 2 * sum("\t" in text for text in texts) > len(texts) else ""


def _name(separator: str) -> str:
    names = {"": "spaces and tabs", " ": "spaces", "\t": "tabs"}
    return names.get(separator, repr(separator))


def _cells(line: str, separator: str) -> list[str]:
    if separator in _BETWEEN_RUNS:
        return _BETWEEN_RUNS[separator].findall(line.strip(_BLANKS))
    return [cell.strip(_BLANKS) for cell in line.rstrip("\r\n").split(separator)]


def _count(cells: Sequence[str]) -> str:
    return f"{len(cells)} column{'s' * (len(cells) != 1)}"


def _without_underscores(sentence: Sentence) -> Sentence:
    is_tagged = sentence.tags is not None and set(sentence.tags) != {"_"}
    return sentence if is_tagged else dataclasses.replace(sentence, tags=None)


def _columns(path: str, reading: Reading, is_conllu: bool) -> tuple[int, int]:
    """Return the numbers of the columns of the token and the tag."""
    token, tag = (1, 3) if is_conllu else (0, -1)
    given = {
        "--text_column": reading.text_column[0] if reading.text_column else None,
        "--label_column": reading.label_column if reading.label_column != "label" else None,
    }
    for flag, value in given.items():
        if value is not None and not value.isdecimal():
            raise InputError(
                f"{flag} must be the number of a column, counted from 0, for {path}, which has "
                f"CoNLL columns. Received: {value!r}."
            )
    numbers = [None if value is None else int(value) for value in given.values()]
    return token if numbers[0] is None else numbers[0], tag if numbers[1] is None else numbers[1]


class _OpenSentence:
    """The tokens and tags of the sentence that is being read."""

    def __init__(self, path: str) -> None:
        self._path, self.document = path, 0
        self._rows: list[tuple[int, str, str | None]] = []

    @property
    def is_empty(self) -> bool:
        """True before the first token."""
        return not self._rows

    def add(self, number: int, cells: Sequence[str], columns: tuple[int, int]) -> None:
        """Add the token of a line.

        Raises:
          InputError: the line has too few columns, or its token or tag is empty.
        """
        token, tag = columns
        if max(token, tag) >= len(cells):
            raise InputError(
                f"{self._path}:{number} must have a column {max(token, tag)}, counted from 0. "
                f"Received: {_count(cells)}. Pass other numbers to --text_column and "
                "--label_column, or another --column_separator."
            )
        has_tag = len(cells) > 1
        if not cells[token] or (has_tag and not cells[tag]):
            raise InputError(
                f"{self._path}:{number}: the token or its tag is empty. Fill it in, or remove the "
                "line."
            )
        self._rows.append((number, cells[token], cells[tag] if has_tag else None))

    def ended(self) -> Iterator[Sentence]:
        """Yield the sentence, if it has tokens, and begin a new one."""
        if self._rows:
            lines, tokens, tags = zip(*self._rows, strict=True)
            yield Sentence(lines, tokens, None if None in tags else tags, self.document)
        self._rows = []
