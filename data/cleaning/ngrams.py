"""Hashes of the words of a text and of runs of n words, the same on every machine."""

import functools
import re
import zlib

import numpy as np

from albert_tf.text.words import word_bounds

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_MIXER = np.uint64(0xBF58476D1CE4E5B9)


@functools.cache
def _pattern() -> re.Pattern[str]:
    """Return the pattern of a word: a run of letters and digits, or one piece of other scripts."""
    bounds = word_bounds().tolist()
    joined = "".join(
        f"{re.escape(chr(begin))}-{re.escape(chr(end - 1))}"
        for begin, end in zip(bounds[::2], bounds[1::2], strict=True)
    )
    return re.compile(f"[{joined}]+|[^\\W{joined}]")


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation."""
    return _pattern().findall(text.lower())


def word_hashes(text: str) -> np.ndarray:
    """Return the hashes of a text's words, uint64 [N]."""
    words = words_of(text)
    codes = (zlib.crc32(word.encode("utf-8", "replace")) for word in words)
    return _mixed(np.fromiter(codes, np.uint64, len(words)))


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
