"""Passages: the parts of documents that a search finds, each with its place."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from albert_tf.text.words import codes_of, spaced_word
from data.corpora.passage_pairs import is_heading
from data.corpora.readers import Document

_BLANKS = np.array([0, *(code for code in range(0x3001) if chr(code).isspace())], np.uint32)
_DROPPED = 10_000  # characters between two sentences, such as a rule, that are in neither


class Passage(NamedTuple):
    """A part of a document.

    Attributes:
      text: as it stands in the document.
      source: the file, package or dataset.
      document: the number of the document in its source, from 1.
      line: the line of the file where the passage or, in JSON lines, its document begins, from 1;
        0 if unknown.
      character: how many characters of the document precede it.
    """

    text: str
    source: str
    document: int
    line: int
    character: int


class _Unit(NamedTuple):
    """A sentence or a part of one: its characters and the number of its words."""

    begin: int
    end: int
    words: int


def passages_of(documents: Iterable[Document], max_words: int) -> Iterator[Passage]:
    """Yield the passages of documents, in order.

    A passage has whole sentences, as many as fit into `max_words` words, but does not end with a
    heading. A longer sentence is divided. The passages of a document contain all of its characters
    but white space. A document without a sentence, such as a rule, has none.
    """
    source, number = None, 0
    for document in documents:
        number = number + 1 if document.source == source else 1
        source = document.source
        yield from _of_document(document, number, max_words)


def _of_document(document: Document, number: int, max_words: int) -> Iterator[Passage]:
    text, line, counted = document.text, document.line, 0
    if not document.sentences:
        return
    for begin, end in spans_of(text, document.sentences, max_words):
        if document.keeps_lines:
            line += text.count("\n", counted, begin)
            counted = begin
        yield Passage(text[begin:end], document.source, number, line, begin)


def spans_of(text: str, sentences: Iterable[str], max_words: int) -> list[tuple[int, int]]:
    """Return where the passages of a text begin and end.

    Args:
      text: the text.
      sentences: its sentences, with other white space than in the text.
      max_words: the most words of a passage. A character of a script without spaces, such as
        Chinese, counts as a word, with its combining marks.
    """
    passages: list[list[_Unit]] = [[]]
    words = 0  # of the last passage
    for unit in _units(text, _sentence_ends(text, sentences), max_words):
        words += unit.words
        if words > max_words and passages[-1]:
            passages.append(_heading_of(text, passages[-1], max_words - unit.words))
            words = unit.words + sum(heading.words for heading in passages[-1])
        passages[-1].append(unit)
    return [(units[0].begin, units[-1].end) for units in passages if units]


def _heading_of(text: str, units: list[_Unit], max_words: int) -> list[_Unit]:
    """Remove a heading that a passage ends with, and return it: it belongs to the next one."""
    last = units[-1]
    is_last = is_heading(text[last.begin : last.end]) and last.words <= max_words
    return [units.pop()] if is_last and len(units) > 1 else []


def _units(text: str, ends: Iterable[int], max_words: int) -> Iterator[_Unit]:
    """Yield the sentences of a text, those that are too long in parts."""
    previous = 0
    for end in ends:
        spans = [match.span() for match in spaced_word().finditer(text, previous, end)]
        for first in range(0, len(spans), max_words):
            part = spans[first : first + max_words]
            yield _Unit(part[0][0], part[-1][1], len(part))
        previous = end


def _sentence_ends(text: str, sentences: Iterable[str]) -> Iterator[int]:
    """Yield where the sentences of a text end; the last one ends with the text.

    The sentences are looked for in the text without its white space.
    """
    codes = codes_of(text)
    places = np.flatnonzero(~np.isin(codes, _BLANKS))
    compact = codes[places].tobytes().decode("utf-32-le", "surrogatepass")
    end = previous = 0
    for sentence in sentences:
        wanted = sentence.replace(" ", "")
        begin = compact.find(wanted, end, end + len(wanted) + _DROPPED)
        if begin < 0 or not wanted:
            continue
        if previous:
            yield previous
        end = begin + len(wanted)
        previous = int(places[end - 1]) + 1
    yield len(text)
