"""What happens to a text before a vocabulary sees it, and the characters that the rules name."""

import dataclasses
import functools
import re
import sys
import unicodedata
from collections.abc import Sequence

import numpy as np

Ranges = tuple[tuple[int, int], ...]  # inclusive code points

_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclasses.dataclass(frozen=True)
class Normalization:
    """What happens to a text before the vocabulary sees it; chosen once, stored beside it.

    The defaults are those of the published uncased English ALBERT (Google's `preprocess_text`).

    Attributes:
      lowercase: lower case, by Unicode's full mapping (not case folding: ß stays ß).
      strip_accents: sentencepiece: NFKD, then every character with a combining class is dropped;
        WordPiece, as BERT: NFD, then every non-spacing mark is dropped.
      unify_quotes: `` and '' become ", which the transformers library does and Google does not.
    """

    lowercase: bool = True
    strip_accents: bool = True
    unify_quotes: bool = False


def normalize(texts: Sequence[str], rules: Normalization) -> list[str]:
    """The texts as sentencepiece takes them: runs of white space to one space, then `rules`.

    Lone surrogates, which UTF-8 cannot carry, become U+FFFD.
    """
    if not _is_collapsed(" ".join(texts)):
        texts = [" ".join(text.split()) for text in texts]
    # One string for the whole batch, so that every rule is one call. "\n" keeps the texts apart:
    # they hold none, and no rule makes, moves or removes one.
    joined = "\n".join(texts)
    if rules.unify_quotes:
        joined = joined.replace("``", '"').replace("''", '"')
    if not joined.isascii():
        joined = _SURROGATES.sub("\ufffd", joined)
        if rules.strip_accents:
            joined = _combining().sub("", unicodedata.normalize("NFKD", joined))
    if rules.lowercase:
        joined = joined.lower()
    return joined.split("\n") if texts else []


def _is_collapsed(text: str) -> bool:
    """True only if single spaces are all the white space: the usual case, told in two scans."""
    # No white space but " " is printable in Python's sense.
    return text.isprintable() and "  " not in text and text.strip() == text


def python_class(ranges: Ranges) -> str:
    """The inside of a character class, for `re`."""
    return "".join(rf"\U{a:08x}-\U{b:08x}" for a, b in ranges)


def re2_class(ranges: Ranges) -> str:
    """The inside of a character class, for TensorFlow."""
    return "".join(rf"\x{{{a:x}}}-\x{{{b:x}}}" for a, b in ranges)


@functools.cache
def combining_ranges() -> Ranges:
    """Code points with a combining class: what `strip_accents` drops."""
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
    """Whether lines of ASCII have no white space but single spaces, and none at their ends."""
    codes = np.frombuffer(f"\n{joined}\n".encode(), np.uint8)
    blank = codes <= ord(" ")
    # The joining "\n" are the only control characters, and no blank stands beside another.
    return int(np.count_nonzero(codes < ord(" "))) == num_lines + 1 and not bool(
        np.any(blank[1:] & blank[:-1])
    )
