"""Pairs of texts that belong together, from the documents of a corpus without labels."""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from albert_tf.runtime import keyed_random
from albert_tf.text.words import spaced_word, word_count, words_of
from data.corpora.sentences import CLOSE, END, WIDE_CLOSE

_END = re.compile(rf"[{END}:;,،؛，；：、][{CLOSE}{WIDE_CLOSE}]*$")
_LONGEST_HEADING = 12  # words
Pair = tuple[str, str]
Span = tuple[int, int]


def passages_of(sentences: Sequence[str], max_words: int) -> list[str]:
    """Return successive whole sentences, as many as fit into `max_words` words each.

    A longer sentence is a passage of its own.
    """
    passages: list[list[str]] = []
    count = 0
    for sentence in sentences:
        words = word_count(sentence)
        if not passages or count + words > max_words:
            passages.append([])
            count = 0
        passages[-1].append(sentence)
        count += words
    return [" ".join(passage) for passage in passages]


def neighbors(sentences: Sequence[str], max_words: int, min_words: int, key: int) -> Iterator[Pair]:
    """Yield a passage of a document and the following one; no passage is in two pairs."""
    passages = passages_of(sentences, max_words)
    for pair in zip(passages[::2], passages[1::2], strict=False):
        if all(word_count(passage) >= min_words for passage in pair):
            yield pair


def crops(sentences: Sequence[str], max_words: int, min_words: int, key: int) -> Iterator[Pair]:
    """Yield two random crops of every `4 max_words` words of a document (arXiv 2112.09118).

    A crop has half of `max_words` to `max_words` words in a row; the two may overlap.
    """
    text = " ".join(sentences)
    words = [match.span() for match in spaced_word().finditer(text)]
    for number, begin in enumerate(range(0, len(words), 4 * max_words)):
        part = words[begin : begin + 4 * max_words]
        chosen = [_crop(part, max_words, key, 4 * number + 2 * i) for i in (0, 1)]
        first, second = (text[crop[0][0] : crop[-1][1]] for crop in chosen)
        if first != second and min(word_count(first), word_count(second)) >= min_words:
            yield first, second


def _crop(words: Sequence[Span], max_words: int, key: int, counter: int) -> Sequence[Span]:
    draws = keyed_random.bits(key, np.array([counter, counter + 1]))
    least = min(len(words), max(1, max_words // 2))
    most = min(len(words), max_words)
    size = least + int(keyed_random.below(draws[:1], most - least + 1)[0])
    begin = int(keyed_random.below(draws[1:], len(words) - size + 1)[0])
    return words[begin : begin + size]


def headings(sentences: Sequence[str], max_words: int, min_words: int, key: int) -> Iterator[Pair]:
    """Yield each heading of a document and the first passage below it.

    A heading is a line of at most 12 words that does not end in a punctuation mark, before one
    that is no heading.
    """
    are_headings = [is_heading(sentence) for sentence in sentences]
    for place in range(len(sentences) - 1):
        if are_headings[place] and not are_headings[place + 1]:
            end = next((i for i in range(place + 1, len(sentences)) if are_headings[i]), None)
            passage = passages_of(sentences[place + 1 : end], max_words)[0]
            if word_count(passage) >= min_words:
                yield sentences[place], passage


def is_heading(sentence: str) -> bool:
    """Return True if a sentence may be a heading: it is short, and no punctuation mark ends it."""
    return word_count(sentence) <= _LONGEST_HEADING and not _END.search(sentence)


KINDS = {"neighbors": neighbors, "crops": crops, "headings": headings}


def comparable(text: str) -> str:
    """Return the words of a text, joined by spaces, by which sentences are compared."""
    return " ".join(words_of(text))
