"""Documents of sentences -> pairs of consecutive segments (facts of create_pretraining_data)."""

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

SHORT_PROBABILITY = 0.1  # BERT section A.2: some shorter sequences, as fine-tuning will see


class SegmentPair(NamedTuple):
    """Two consecutive runs of a document's pieces; `second` is empty where a pair is impossible."""

    first: list[int]
    second: list[int]
    lost: int  # pieces cut to make the pair fit


def segment_pairs(
    sentences: Sequence[Sequence[int]], max_pieces: int, rng: random.Random
) -> Iterator[SegmentPair]:
    """Cuts a document into chunks of about `max_pieces` and each chunk into two segments.

    A chunk takes sentences until it holds its target of pieces and at least two sentences; the
    target is `max_pieces`, or for one chunk in ten uniform in [2, max_pieces]. The cut between the
    segments falls between two sentences. Too long a pair loses pieces at the ends of its longer
    segment, front or back at random. A last sentence that stands alone becomes a `first` without a
    `second`: it trains the masked LM and has no order to predict.
    """
    chunk: list[Sequence[int]] = []
    size, target = 0, _target(max_pieces, rng)
    for number, sentence in enumerate(sentences):
        chunk.append(sentence)
        size += len(sentence)
        is_last = number == len(sentences) - 1
        if is_last or (size >= target and len(chunk) > 1):
            yield _split(chunk, max_pieces, rng)
            chunk, size, target = [], 0, _target(max_pieces, rng)


def _target(max_pieces: int, rng: random.Random) -> int:
    return rng.randint(2, max_pieces) if rng.random() < SHORT_PROBABILITY else max_pieces


def _split(chunk: list[Sequence[int]], max_pieces: int, rng: random.Random) -> SegmentPair:
    cut = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
    first = [piece for sentence in chunk[:cut] for piece in sentence]
    second = [piece for sentence in chunk[cut:] for piece in sentence]
    first_keep, second_keep = fit(len(first), len(second), max_pieces)
    lost = len(first) + len(second) - first_keep - second_keep
    return SegmentPair(_cut(first, first_keep, rng), _cut(second, second_keep, rng), lost)


def fit(first: int, second: int, limit: int) -> tuple[int, int]:
    """Lengths after taking pieces one by one from the longer segment (the second on a tie)."""
    excess = first + second - limit
    if excess <= 0:
        return first, second
    gap = abs(first - second)
    if excess <= gap:
        return (first - excess, second) if first > second else (first, second - excess)
    return limit - limit // 2, limit // 2


def _cut(pieces: list[int], keep: int, rng: random.Random) -> list[int]:
    excess = len(pieces) - keep
    # Each cut piece comes from the front or the back with equal chance.
    front = rng.getrandbits(excess).bit_count() if excess else 0
    return pieces[front : front + keep]
