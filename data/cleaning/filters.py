"""Filters of single documents: repeated lines, held-out texts, words, letters, language."""

import re
from typing import Any

from albert_tf.runtime import extras, settings
from albert_tf.runtime.errors import InputError
from albert_tf.text.normalization import normal_form
from albert_tf.text.words import combining_marks
from data.cleaning.held_out import HeldOut
from data.cleaning.ngrams import num_words
from data.cleaning.options import CleanOptions
from data.cleaning.repeated_lines import RepeatedLines
from data.cleaning.report import Report

_NO_LETTERS, _BLANKS = re.compile(r"[\W\d_]+"), re.compile(r"\s+")
_PARAGRAPHS = re.compile(r"(\n[^\S\n]*\n\s*)")  # with what lies between them
_IDENTIFIED = 10_000  # characters from which the language is found


class Filters:
    """What the options ask for, but for duplicates.

    Args:
      options: the command line.
      report: counts what is removed.

    Attributes:
      repeated: the lines to remove, if any.

    Raises:
      InputError: a language is unknown, or a file of --held_out cannot be read.
    """

    def __init__(self, options: CleanOptions, report: Report) -> None:
        self._options, self._report = options, report
        self.repeated: RepeatedLines | None = None
        self._held_out = HeldOut(options.held_out) if options.held_out else None
        self._languages = set(filter(None, options.languages.split(",")))
        self._identify = identifier(self._languages) if self._languages else None

    def cleaned(self, text: str, source: str) -> str | None:
        """Return what stays of a document, None if nothing does."""
        left = self._without_repeated(text, source)
        left = self._without_held_out(left, source)
        if not left.strip():
            if text.strip():
                self._report.drop("nothing left of the document", text, source)
            return None
        if why := self._problem(left):
            self._report.drop(why, left, source)
            return None
        return left

    def _without_repeated(self, text: str, source: str) -> str:
        if self.repeated is None:
            return text
        text, removed = self.repeated.removed_from(text)
        for line in removed:
            self._report.remove("lines of many documents", line, source)
        return text

    def _without_held_out(self, text: str, source: str) -> str:
        if self._held_out is None:
            return text
        parts, rest = _PARAGRAPHS.split(text), ""
        for blank, part in zip(["", *parts[1::2]], parts[::2], strict=True):
            if self._held_out.overlaps(part):
                self._report.remove("paragraphs with held-out text", part, source)
            else:
                rest += blank + part if rest else part
        return rest

    def _problem(self, text: str) -> str:
        """Return why a document is dropped, "" if it stays."""
        options = self._options
        if options.min_words or options.max_words:
            count = num_words(text)
            if count < options.min_words:
                return f"fewer than {options.min_words:,} words"
            if 0 < options.max_words < count:
                return f"more than {options.max_words:,} words"
        if options.min_letters and _share_of_letters(text) < options.min_letters:
            return f"less than {options.min_letters:.0%} letters"
        if self._identify:
            language, _ = self._identify(text[:_IDENTIFIED])
            if language not in self._languages:
                return f"another language than {options.languages}"
        return ""


def _share_of_letters(text: str) -> float:
    """Return the share of letters among all characters but white space and combining marks."""
    if not text.isascii():
        marks = re.compile(f"[{combining_marks()}]+")  # compiled once, as `re` keeps it
        text = marks.sub("", normal_form("NFC", text))
    return len(_NO_LETTERS.sub("", text)) / max(1, len(_BLANKS.sub("", text)))


def identifier(languages: set[str]) -> Any:
    """Return the function that finds the language of a text, and its score.

    Raises:
      InputError: one of the languages is unknown, or the package is missing.
    """
    package = extras.load("py3langid", "clean", "--languages")
    known = [name for name, _ in package.rank("")]
    for name in sorted(languages):
        if name not in known:
            raise InputError(f"--languages: {settings.unknown_key(name, known, 'language')}")
    return package.classify
