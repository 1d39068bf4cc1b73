"""Where words begin and end in a text that is not split into tokens.

A word is a run of letters, digits and combining marks, or one other visible character. In scripts
without spaces between words, such as Chinese and Thai, and in Korean, where endings follow names
without a space, every piece begins a word.
"""

import functools
import re
import sys
import unicodedata

import numpy as np

from albert_tf.text.normalization import normal_form

_BY_PIECES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x0F00, 0x109F),  # Tibetan, Myanmar
    (0x1100, 0x11FF),  # Hangul
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3130, 0x318F),  # Hangul
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xAA60, 0xAA7F),
    (0xAC00, 0xD7AF),  # Hangul
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),
    (0x20000, 0x3FFFF),
)
HANGUL = ((0x1100, 0x11FF), (0x3130, 0x318F), (0xAC00, 0xD7AF))  # Korean has spaces


@functools.cache
def word_bounds() -> np.ndarray:
    """Return the code points at which characters begin or cease to join words, int32, ascending.

    A character joins the one before it to a word if both belong to a range that begins at an even
    index of the result.
    """
    joins = np.array([category[0] in "LMN" for category in _categories()])
    for first, last in _BY_PIECES:
        joins[first : last + 1] = False
    return _bounds(joins)


def word_count(text: str) -> int:
    """Return the number of words between white space.

    It is the number of characters of scripts without spaces, such as Chinese, if that is larger.
    """
    spaced = len(text.split())
    return spaced if text.isascii() else max(spaced, len(unspaced().findall(text)))


_SAME = {0xAD: None, 0x2BC: "'"}  # a soft hyphen; the apostrophe of Ukrainian
_LONGEST_WORD = 100  # characters
_ASCII_WORD = re.compile(r"[^\W_]+")
UNSPACED = "".join(  # the characters of scripts without spaces between words, for a class of `re`
    f"{chr(first)}-{chr(last)}" for first, last in _BY_PIECES if (first, last) not in HANGUL
)


def folded(text: str) -> str:
    """Return a text in which words that are the same have the same characters.

    These are in lower case and in compatibility form (NFKC), as vocabularies have them, without
    soft hyphens, and without the dot that Python's lower case of \u0130 has above its i.
    """
    if text.isascii():
        return text.lower()
    return normal_form("NFKC", text.translate(_SAME)).lower().replace("i\u0307", "i")


def words_of(text: str) -> list[str]:
    """Return the words of `folded` text; see `word`.

    A text without any has none, as one of punctuation marks alone.
    """
    return (_ASCII_WORD if text.isascii() else word()).findall(folded(text))


@functools.cache
def word() -> re.Pattern[str]:
    """Return the pattern of a word: letters and digits with their combining marks.

    In scripts without spaces between words, each character is one.
    """
    marks = combining_marks()
    return re.compile(rf"(?:[^\W_{UNSPACED}]+[{marks}]*)+|(?=\w){unspaced().pattern}")


@functools.cache
def combining_marks() -> str:
    """Return all combining marks, such as the vowel signs of Hindi, for a class of `re`."""
    return "".join(chr(code) for code, name in enumerate(_categories()) if name[0] == "M")


@functools.cache
def unspaced() -> re.Pattern[str]:
    """Return the pattern of a character of scripts without spaces, with its combining marks."""
    return re.compile(f"[{UNSPACED}][{combining_marks()}]*")


@functools.cache
def spaced_word() -> re.Pattern[str]:
    """Return the pattern of a word between white space, as `word_count` counts them.

    In scripts without spaces between words, it is a character. Long runs are divided, as the lines
    of an encoded file.
    """
    return re.compile(rf"{unspaced().pattern}|[^\s\0{UNSPACED}]{{1,{_LONGEST_WORD}}}")


@functools.cache
def invisible_bounds() -> np.ndarray:
    """Return the same for characters that are no part of a word or an answer at its ends.

    They are white space, control characters and format characters, such as marks of direction.
    """
    spaces = np.array([chr(code).isspace() for code in range(sys.maxunicode + 1)])
    return _bounds(spaces | np.array([category in ("Cc", "Cf") for category in _categories()]))


def visible_part(text: str) -> tuple[int, str]:
    """Return where the text begins without invisible characters at its ends, and this part."""
    ends = _invisible_characters()
    return len(text) - len(text.lstrip(ends)), text.strip(ends)


@functools.cache
def _invisible_characters() -> str:
    codes = np.arange(sys.maxunicode + 1)
    return "".join(map(chr, codes[in_ranges(codes, invisible_bounds())]))


def codes_of(text: str) -> np.ndarray:
    """Return the code points of a text, uint32 [C]."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


def in_ranges(codes: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Return for code points of any shape whether each is in a range of `bounds`."""
    return np.searchsorted(bounds, codes, side="right") % 2 == 1


@functools.cache
def _categories() -> list[str]:
    return [unicodedata.category(chr(code)) for code in range(sys.maxunicode + 1)]


def _bounds(is_inside: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.diff(is_inside, prepend=False)).astype(np.int32)
