"""Hashes of the words of a text and of runs of n words: the same in every process."""

import functools
import re
import sys
from collections.abc import Iterator

import numpy as np

from albert_tf.text.words import HANGUL, codes_of, folded, word_bounds

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_INVERSE = np.uint64(pow(int(_FACTOR), -1, 2**64))
_MIXER = np.uint64(0xBF58476D1CE4E5B9)
_BLOCK = 2**20  # characters whose words are found at once; words end at white space
_SPACE = re.compile(r"\s")
_JOINS, _ALONE = 1, 2  # a character of words, and one that is a word by itself


def num_words(text: str) -> int:
    """Return the number of words of a text."""
    return sum(len(begins) for _, begins, _ in _words(text))


def word_hashes(text: str) -> np.ndarray:
    """Return the hashes of a text's words in lower case, without punctuation, uint64 [N].

    A word is a run of letters and digits, or one character of scripts without spaces.
    """
    hashes: list[np.ndarray] = [np.zeros(0, np.uint64)]
    for codes, begins, ends in _words(text):
        powers, inverse = _powers(max(len(codes), _BLOCK))
        sums: np.ndarray = np.zeros(len(codes) + 1, np.uint64)
        np.cumsum((codes.astype(np.uint64) + 1) * powers[: len(codes)], out=sums[1:])
        # Times the inverse, a hash is independent of the word's place.
        hashes.append(_mixed((sums[ends] - sums[begins]) * inverse[begins]))
    return np.concatenate(hashes)


@functools.lru_cache(1)
def _powers(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first powers of the factor and of its inverse, uint64 [count] each."""
    factor, inverse = (np.cumprod(np.full(count, value)) for value in (_FACTOR, _INVERSE))
    return factor, inverse


def _words(text: str) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the code points of parts of a text in lower case, and where their words begin and end.

    They are uint32 [C], and int64 [N] each.
    """
    for part in _parts(folded(text)):
        codes = codes_of(part)
        role = _roles()[codes]
        alone, joins = role == _ALONE, role == _JOINS
        edge = joins[1:] != joins[:-1]
        begins: np.ndarray = alone | joins
        begins[1:] &= alone[1:] | edge
        ends: np.ndarray = alone | joins
        ends[:-1] &= alone[:-1] | edge
        yield codes, np.flatnonzero(begins), np.flatnonzero(ends) + 1


def _parts(text: str) -> Iterator[str]:
    """Yield the text in blocks that end at white space, unless a block has none."""
    begin = 0
    while begin < len(text):
        end = begin + _BLOCK
        if end < len(text):
            end = max(text.rfind(blank, begin + 1, end) for blank in " \n")
            if end < 0:
                space = _SPACE.search(text, begin + _BLOCK)
                end = space.start() if space else len(text)
        yield text[begin:end]
        begin = end


@functools.cache
def _roles() -> np.ndarray:
    """Return `_JOINS`, `_ALONE` or 0 for each code point, uint8."""
    count = sys.maxunicode + 1
    joins = np.searchsorted(word_bounds(), np.arange(count), side="right") % 2 == 1
    for first, last in HANGUL:  # Korean has spaces
        joins[first : last + 1] = True
    word = np.array([chr(code).isalnum() for code in range(count)])
    return np.where(joins, _JOINS, np.where(word, _ALONE, 0)).astype(np.uint8)


def ngram_hashes(words: np.ndarray, size: int) -> np.ndarray:
    """Return the hashes of all runs of `size` words, uint64 [max(0, N - size + 1)]."""
    count = max(0, len(words) - size + 1)
    hashes: np.ndarray = np.zeros(count, np.uint64)
    for place in range(size):
        hashes = hashes * _FACTOR + words[place : place + count]
    return _mixed(hashes)


def _mixed(values: np.ndarray) -> np.ndarray:
    values = (values ^ (values >> np.uint64(30))) * _MIXER
    return values ^ (values >> np.uint64(27))
