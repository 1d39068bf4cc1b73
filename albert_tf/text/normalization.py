"""The normalization of a text before it is split into pieces, and its character classes."""

import dataclasses
import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Sequence
from typing import Literal

import numpy as np

Ranges = tuple[tuple[int, int], ...]  # inclusive code points

SURROGATES = re.compile("[\ud800-\udfff]")
# Characters without a combining class that NFKD turns into characters with one.
COMPOSED_MARKS = "\u0f73\u0f75\u0f81\uff9e\uff9f"
_LONG_RUN = 31  # characters; Unicode's Stream-Safe Text Format has at most 30


@dataclasses.dataclass(frozen=True)
class Normalization:
    """The normalization rules of a vocabulary, stored with it.

    The defaults are those of the published uncased English ALBERT (Google's `preprocess_text`).

    Attributes:
      lowercase: convert to lower case, by Unicode's full mapping (not case folding: ß stays ß).
      strip_accents: for sentencepiece, apply NFKD and drop every character with a combining class;
        for WordPiece, as in BERT, apply NFD and drop every non-spacing mark.
      unify_quotes: replace `` and '' by ", as the transformers library does and Google does not.
    """

    lowercase: bool = True
    strip_accents: bool = True
    unify_quotes: bool = False


def normalize(texts: Sequence[str], rules: Normalization) -> list[str]:
    """Normalize texts for sentencepiece: replace each run of white space by a space, apply `rules`.

    Leading and trailing white space is removed. Lone surrogates, which UTF-8 cannot encode, become
    U+FFFD.
    """
    if not _is_collapsed(" ".join(texts)):
        texts = [" ".join(text.split()) for text in texts]
    # One string for the whole batch, so that every rule is one call. "\n" separates the texts: they
    # contain none, and no rule adds, moves or removes one.
    joined = "\n".join(texts)
    if rules.unify_quotes:
        joined = joined.replace("``", '"').replace("''", '"')
    if not joined.isascii():
        joined = SURROGATES.sub("\ufffd", joined)
        if rules.strip_accents:
            joined = _combining().sub("", normal_form("NFKD", joined))
    if rules.lowercase:
        joined = joined.lower()
    return joined.split("\n") if texts else []


def _is_collapsed(text: str) -> bool:
    """Return True only if all white space is single inner spaces: a fast test of the usual case."""
    # " " is the only printable white space for str.isprintable.
    return text.isprintable() and "  " not in text and text.strip() == text


def normal_form(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """Return `unicodedata.normalize(form, text)`, in linear time.

    Every form sorts adjacent combining characters by their classes. Python sorts by insertion, so
    the time for a run of them is quadratic unless they are already in order. Here long runs are
    sorted first.
    """
    if not text.isascii():
        text = _long_runs().sub(lambda run: _in_canonical_order(form, run[0]), text)
    return unicodedata.normalize(form, text)


def _in_canonical_order(form: str, text: str) -> str:
    form_of_one: Literal["NFD", "NFKD"] = "NFKD" if "K" in form else "NFD"
    characters = "".join([unicodedata.normalize(form_of_one, character) for character in text])
    runs = itertools.groupby(characters, lambda character: unicodedata.combining(character) > 0)
    return "".join(itertools.chain(*(sorted(run, key=unicodedata.combining) for _, run in runs)))


@functools.cache
def _long_runs() -> re.Pattern[str]:
    """Return the pattern of long runs of combining characters and of any astral characters.

    For a character outside all ranges, `re` tests each range beyond the basic plane, so there is
    only one.
    """
    basic = python_class(tuple(run for run in combining_ranges() if run[0] <= 0xFFFF))
    return re.compile(f"[{basic}{COMPOSED_MARKS}\U00010000-\U0010ffff]{{{_LONG_RUN},}}")


def python_class(ranges: Ranges) -> str:
    """Return the inside of a character class for `re`."""
    return "".join(rf"\U{a:08x}-\U{b:08x}" for a, b in ranges)


def re2_class(ranges: Ranges) -> str:
    """Return the inside of a character class for TensorFlow (RE2)."""
    return "".join(rf"\x{{{a:x}}}-\x{{{b:x}}}" for a, b in ranges)


@functools.cache
def combining_ranges() -> Ranges:
    """Return the code points with a combining class, which `strip_accents` drops."""
    ranges: list[tuple[int, int]] = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.combining(chr(code)):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1] = (ranges[-1][0], code)
            else:
                ranges.append((code, code))
    return tuple(ranges)


@functools.cache
def _combining() -> re.Pattern[str]:
    return re.compile(f"[{python_class(combining_ranges())}]+")


def is_collapsed(joined: str, num_lines: int) -> bool:
    """Return True if the only white space in lines of ASCII is single spaces, none at the ends."""
    codes = np.frombuffer(f"\n{joined}\n".encode(), np.uint8)
    blank = codes <= ord(" ")
    # The joining "\n" are the only control characters, and no two blanks are adjacent.
    return int(np.count_nonzero(codes < ord(" "))) == num_lines + 1 and not bool(
        np.any(blank[1:] & blank[:-1])
    )
