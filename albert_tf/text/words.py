"""Where words begin in a text that is not split into tokens.

A word is a run of letters, digits and combining marks, or one other character. In scripts without
spaces between words, such as Chinese and Thai, every piece begins a word.
"""

import functools
import sys
import unicodedata

import numpy as np

_WITHOUT_SPACES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x0F00, 0x109F),  # Tibetan, Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xAA60, 0xAA7F),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),
    (0x20000, 0x3FFFF),
)


@functools.cache
def word_bounds() -> np.ndarray:
    """Return the code points at which characters begin or cease to join words, int32, ascending.

    A character joins the one before it to a word if both belong to a range that begins at an even
    index of the result.
    """
    joins = np.array(
        [unicodedata.category(chr(code))[0] in "LMN" for code in range(sys.maxunicode + 1)]
    )
    for first, last in _WITHOUT_SPACES:
        joins[first : last + 1] = False
    return np.flatnonzero(np.diff(joins, prepend=False)).astype(np.int32)


def joins_words(codes: np.ndarray) -> np.ndarray:
    """Return for code points of any shape whether each belongs to a word of several characters."""
    return np.searchsorted(word_bounds(), codes, side="right") % 2 == 1
