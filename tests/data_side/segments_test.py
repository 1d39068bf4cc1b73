"""Proves how documents become pairs of segments: nothing reordered, lost only where counted."""

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from data import segments
from data.segments import fit

EVERY_PIECE = np.ones(1000, bool)  # each a word of its own
SENTENCES = st.lists(st.integers(1, 30), min_size=1, max_size=20)


def document(*lengths: int) -> list[list[int]]:
    """Sentences of these lengths; the pieces are numbered through the document."""
    ends = np.cumsum(lengths).tolist()
    return [list(range(end - n, end)) for n, end in zip(lengths, ends, strict=True)]


def segment_pairs(sentences, max_pieces, rng, is_word_start=EVERY_PIECE):
    return segments.segment_pairs(sentences, max_pieces, rng, is_word_start)


@pytest.fixture
def full_targets(monkeypatch):
    monkeypatch.setattr(segments, "SHORT_PROBABILITY", 0.0)


def lengths_of(sentences, max_pieces, seed=0):
    """(pieces in the pair, pieces lost, whether there is a second segment) of each pair."""
    pairs = segment_pairs(sentences, max_pieces, random.Random(seed))
    return [(len(p.first) + len(p.second), p.lost, bool(p.second)) for p in pairs]


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        # Sentences are taken until the target of 10 is reached; the rest is cut to it.
        ((5, 5, 5, 5), [(10, 0, True), (10, 0, True)]),
        ((4, 4, 4, 4, 4, 4), [(10, 2, True), (10, 2, True)]),
        # Less than the target at the end of the document is a pair as well.
        ((5, 5, 2, 2), [(10, 0, True), (4, 0, True)]),
        # One long sentence is not enough: there must be two.
        ((10, 1, 5), [(10, 1, True), (5, 0, False)]),
        ((10, 1, 5, 1), [(10, 1, True), (6, 0, True)]),
        # A sentence of more than 10 is cut into parts of 2; nothing of it is lost.
        ((20,), [(10, 0, True), (10, 0, True)]),
        ((5, 20, 1), [(9, 0, True), (10, 0, True), (7, 0, True)]),
        # A last sentence that stands alone has no second segment, and is cut as well.
        ((5, 5, 3), [(10, 0, True), (3, 0, False)]),
        ((5, 5, 30), [(10, 0, True)] * 4),
        ((7,), [(7, 0, False)]),
        ((), []),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_hand_made_documents(full_targets, lengths, expected, seed):
    assert lengths_of(document(*lengths), 10, seed) == expected


def test_the_cut_falls_between_any_two_sentences(full_targets):
    sentences = document(2, 3, 5)
    cuts = set()
    for seed in range(50):
        (pair,) = segment_pairs(sentences, 10, random.Random(seed))
        assert pair.first + pair.second == list(range(10))
        cuts.add(len(pair.first))
    assert cuts == {2, 5}


@given(SENTENCES, st.integers(2, 40), st.integers(0, 9))
@hypothesis_settings(deadline=None)
def test_nothing_is_reordered_and_what_is_lost_is_counted(lengths, max_pieces, seed):
    sentences = document(*lengths)
    ends = np.cumsum(lengths).tolist()
    bounds = {0, *ends}
    # A long sentence may be cut at any word, and here each piece is one.
    for length, end in zip(lengths, ends, strict=True):
        bounds |= set(range(end - length, end)) if length > max_pieces else set()
    pairs = list(segment_pairs(sentences, max_pieces, random.Random(seed)))
    kept = [piece for pair in pairs for piece in pair.first + pair.second]
    assert kept == sorted(set(kept))
    assert len(kept) + sum(pair.lost for pair in pairs) == sum(lengths)
    for pair in pairs:
        assert 1 <= len(pair.first) and len(pair.first) + len(pair.second) <= max_pieces
        for segment in filter(None, pair[:2]):
            assert segment == list(range(segment[0], segment[-1] + 1))  # cut at the ends only
        if pair.lost == 0:
            assert {pair.first[0], pair.first[-1] + 1} <= bounds  # whole sentences
            if pair.second:
                assert pair.second[0] == pair.first[-1] + 1
        else:
            assert len(pair.first) + len(pair.second) == max_pieces  # no more lost than needed
    assert all(pair.second for pair in pairs[:-1])


@given(st.integers(0, 200), st.integers(0, 200), st.integers(0, 300))
def test_fit_is_taking_pieces_one_by_one_from_the_longer(first, second, limit):
    for odd in (0, 1):
        expected = [first, second]
        while sum(expected) > limit:
            expected[0 if expected[0] + (1 - odd) > expected[1] else 1] -= 1
        assert fit(first, second, limit, odd) == tuple(expected)


def test_the_place_of_the_separator_does_not_tell_the_order(full_targets):
    """Pairs cut to parity are (31, 30) as often as (30, 31): else SOP could count pieces."""
    rng = random.Random(0)
    pairs = [next(segment_pairs(document(50, 50), 61, rng)) for _ in range(2000)]
    longer = sum(len(pair.first) == 31 for pair in pairs)
    assert {len(pair.first) for pair in pairs} == {30, 31}
    assert abs(longer - 1000) < 5 * (2000 / 4) ** 0.5


@given(st.integers(41, 300), st.integers(0, 9), st.integers(1, 15))
@hypothesis_settings(deadline=None)
def test_a_long_sentence_loses_nothing_and_is_cut_before_words(length, seed, word):
    """Of words of `word` pieces; longer ones than a quarter of a sequence are cut inside."""
    is_word_start = np.arange(1000) % word == 0
    pairs = list(segment_pairs(document(length), 40, random.Random(seed), is_word_start))
    assert [p for pair in pairs for p in pair.first + pair.second] == list(range(length))
    if word <= 10:
        assert all(is_word_start[part[0]] for pair in pairs for part in pair[:2] if part)
    assert all(pair.second and pair.lost == 0 for pair in pairs[:-1])


def test_one_chunk_in_ten_has_a_shorter_target_uniform_from_two():
    """With sentences of one piece the target shows in the length."""
    pairs = list(segment_pairs([[0]] * 1_000_000, 51, random.Random(0)))[:-1]
    sizes = np.array([len(pair.first) + len(pair.second) for pair in pairs])
    assert sizes.min() == 2 and sizes.max() == 51
    short = sizes < 51
    expected = 0.1 * 49 / 50  # the uniform draw from [2, 51] may be 51 as well
    tolerance = 5 * (expected * (1 - expected) / len(sizes)) ** 0.5
    assert abs(short.mean() - expected) < tolerance
    counts = np.bincount(sizes[short])[2:51]
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert abs(chi_square - 48) < 5 * (2 * 48) ** 0.5


def test_front_and_back_lose_about_the_same(full_targets):
    rng = random.Random(0)
    front = sum(next(segment_pairs(document(100, 50), 100, rng)).first[0] for _ in range(500))
    assert abs(front - 500 * 25) < 5 * (500 * 50 / 4) ** 0.5


def test_the_same_seed_gives_the_same_pairs():
    sentences = document(*random.Random(1).choices(range(1, 20), k=200))
    runs = [list(segment_pairs(sentences, 40, random.Random(seed))) for seed in (3, 3, 4)]
    assert runs[0] == runs[1] != runs[2]
    assert all(a.first[0] < b.first[0] for a, b in pairwise(runs[0]))
