"""Documents of sentences -> pairs of consecutive segments, by the rule of BERT and ALBERT."""

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

SHORT_PROBABILITY = 0.1  # BERT section A.2: some shorter sequences, as fine-tuning will see


class SegmentPair(NamedTuple):
    """Two consecutive runs of a document's pieces; `second` is empty where a pair is impossible."""

    first: list[int]
    second: list[int]
    lost: int  # pieces cut to make the pair fit


def segment_pairs(
    sentences: Sequence[Sequence[int]],
    max_pieces: int,
    rng: random.Random,
    is_word_start: np.ndarray,
) -> Iterator[SegmentPair]:
    """Cuts a document into chunks of about `max_pieces` and each chunk into two segments.

    A chunk takes sentences until it holds its target of pieces and at least two sentences; the
    target is `max_pieces`, or for one chunk in ten uniform in [2, max_pieces]. The cut between the
    segments falls between two sentences. Too long a pair loses pieces at the ends of its longer
    segment, front or back at random. A last sentence that stands alone becomes a `first` without a
    `second`: it trains the masked LM and has no order to predict.

    A sentence of more than `max_pieces` (text without sentence ends: Thai, logs) is first cut into
    parts, which then count as sentences: before a word where there is one, by the table
    `is_word_start`, bool [V]. A part that would not fit begins the next chunk, so nothing of it is
    lost.
    """
    chunk: list[Sequence[int]] = []
    size, target = 0, _target(max_pieces, rng)
    for sentence, is_part in _parts(sentences, max_pieces, is_word_start):
        overflows = is_part and size + len(sentence) > max_pieces
        if len(chunk) > 1 and (size >= target or overflows):
            yield _split(chunk, max_pieces, rng)
            chunk, size, target = [], 0, _target(max_pieces, rng)
        chunk.append(sentence)
        size += len(sentence)
    if chunk:
        yield _split(chunk, max_pieces, rng)


def _parts(
    sentences: Sequence[Sequence[int]], max_pieces: int, is_word_start: np.ndarray
) -> Iterator[tuple[Sequence[int], bool]]:
    """The sentences, and whether each is only a part of one that is too long for a sequence."""
    longest = max(1, max_pieces // 4)  # a quarter: the cut between the segments can still vary
    for sentence in sentences:
        if len(sentence) <= max_pieces:
            yield sentence, False
            continue
        starts = is_word_start[np.asarray(sentence)]
        begin = 0
        while begin < len(sentence):
            end = begin + longest
            if end < len(sentence):
                words = np.flatnonzero(starts[begin + 1 : end + 1])
                end = begin + 1 + int(words[-1]) if len(words) else end
            yield sentence[begin:end], True
            begin = end


def _target(max_pieces: int, rng: random.Random) -> int:
    return rng.randint(2, max_pieces) if rng.random() < SHORT_PROBABILITY else max_pieces


def _split(chunk: list[Sequence[int]], max_pieces: int, rng: random.Random) -> SegmentPair:
    cut = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
    first = [piece for sentence in chunk[:cut] for piece in sentence]
    second = [piece for sentence in chunk[cut:] for piece in sentence]
    # At random, or the place of [SEP] would tell which segment came first in the text.
    odd = rng.getrandbits(1)
    first_keep, second_keep = fit(len(first), len(second), max_pieces, odd)
    lost = len(first) + len(second) - first_keep - second_keep
    return SegmentPair(_cut(first, first_keep, rng), _cut(second, second_keep, rng), lost)


def fit(first: int, second: int, limit: int, odd: int) -> tuple[int, int]:
    """Lengths after taking pieces one by one from the longer segment.

    Of equal ones the first keeps its piece where `odd` is 1, the second where it is 0.
    """
    excess = first + second - limit
    if excess <= 0:
        return first, second
    gap = abs(first - second)
    if excess <= gap:
        return (first - excess, second) if first > second else (first, second - excess)
    kept = (limit + odd) // 2
    return kept, limit - kept


def _cut(pieces: list[int], keep: int, rng: random.Random) -> list[int]:
    excess = len(pieces) - keep
    # Each cut piece comes from the front or the back with equal chance.
    front = rng.getrandbits(excess).bit_count() if excess else 0
    return pieces[front : front + keep]
