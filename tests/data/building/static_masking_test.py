"""Tests of static masks: whole words, exact budget, p(n) ~ 1/n, every word alike, 80/10/10."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from data.building.sequences import Sequences
from data.building.static_masking import StaticMasking, choose, replace

VOCAB = 1000


def config(max_predictions=20, max_ngram=3, rate=0.15, quirks=False) -> StaticMasking:
    return StaticMasking(rate, max_ngram, max_predictions, 4, (0, 1, 2, 3, 4), VOCAB, quirks)


def sequences(first, second, pieces=None, seed=0) -> Sequences:
    count, total = len(first), int(np.sum(first) + np.sum(second))
    rng = np.random.default_rng(seed)
    return Sequences(
        keys=rng.integers(0, 2**63, count).astype(np.uint64),
        documents=np.zeros(count, np.int64),
        labels=np.zeros(count, np.uint8),
        first=np.array(first, np.int32),
        second=np.array(second, np.int32),
        pieces=np.full(total, 7, np.uint16) if pieces is None else pieces.astype(np.uint16),
    )


EVERY_PIECE = np.ones(VOCAB, bool)


def is_chosen(rows: Sequences, is_word_start: np.ndarray, given: StaticMasking) -> np.ndarray:
    """bool [number of pieces]: whether a piece is predicted."""
    found = np.zeros(len(rows.pieces), bool)
    found[choose(rows, is_word_start, given)] = True
    return found


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=8),
    st.integers(1, 5),
    st.integers(1, 30),
    st.booleans(),
    st.integers(0, 9),
)
@hypothesis_settings(deadline=None, max_examples=60)
def test_masks_are_whole_words_within_the_budget(lengths, max_ngram, slots, quirks, seed):
    """Pieces below 500 begin a word. Nothing that still fits is left."""
    first, second = zip(*lengths, strict=True)
    rng = np.random.default_rng(seed)
    pieces = rng.integers(5, VOCAB, sum(first) + sum(second))
    is_word_start = np.arange(VOCAB) < 500
    rows = sequences(first, second, pieces, seed)
    chosen = is_chosen(rows, is_word_start, config(slots, max_ngram, quirks=quirks))
    end = 0
    for a, b in lengths:
        begin, end = end, end + a + b
        mine, starts = chosen[begin:end], is_word_start[pieces[begin:end]].copy()
        starts[0] = True
        starts[a] |= not quirks
        words = np.split(mine, np.flatnonzero(starts)[1:])
        assert all(word.all() or not word.any() for word in words)
        budget = min(slots, max(1, round(0.15 * (a + b + 3))))
        missing = budget - mine.sum()
        assert missing >= 0
        assert all(len(word) > missing for word in words if not word.any()) or missing == 0


def test_words_of_one_piece_use_the_budget_exactly():
    rows = sequences([60] * 500, [61] * 500)
    chosen = is_chosen(rows, EVERY_PIECE, config())
    assert (chosen.reshape(500, 121).sum(axis=1) == round(0.15 * 124)).all()


def runs(chosen: np.ndarray) -> np.ndarray:
    """Lengths of runs of True in each row, all rows together."""
    padded = np.pad(chosen, ((0, 0), (1, 1))).astype(np.int8)
    change = np.diff(padded, axis=1).ravel()
    return np.flatnonzero(change == -1) - np.flatnonzero(change == 1)


def test_ngram_lengths_follow_1_over_n():
    """At 1 % n-grams hardly touch: a run is an n-gram. Of budgets of many, few are shortened."""
    rows = sequences([20_000] * 40, [20_000] * 40)
    chosen = is_chosen(rows, EVERY_PIECE, config(40_000, rate=0.01)).reshape(40, -1)
    lengths = runs(chosen)
    lengths = lengths[lengths <= 3]
    shares = np.bincount(lengths, minlength=4)[1:] / len(lengths)
    # A neighbour makes two of one: at most 2 x 2.5 words x the density of 0.006 n-grams a word.
    assert np.abs(shares - np.array([6, 3, 2]) / 11).max() < 0.03


def test_every_word_is_masked_alike_wherever_it_stands():
    """Also the first and the last of each segment: n-grams may stand across an end."""
    rows = sequences([30] * 20_000, [31] * 20_000)
    share = is_chosen(rows, EVERY_PIECE, config(10)).reshape(20_000, 61).mean(axis=0)
    expected = 10 / 61
    tolerance = 5 * (expected / 20_000) ** 0.5
    assert np.abs(share - expected).max() < tolerance + 0.05 * expected
    ends = share[[0, 29, 30, 60]].mean()
    assert abs(ends - expected) < 0.04 * expected


def test_quirks_mask_ends_less_and_cross_the_separator():
    """Google's n-grams begin at words: the first word is covered by one start of three."""
    rows = sequences([30] * 20_000, [31] * 20_000)
    share = is_chosen(rows, EVERY_PIECE, config(10, quirks=True)).reshape(20_000, 61).mean(axis=0)
    assert share[0] < 0.75 * share[10:50].mean()
    assert abs(share[30] - share[10:50].mean()) < 0.05 * share[30]  # the second segment's is not


def test_masks_do_not_depend_on_other_sequences():
    rows = sequences([20, 9, 40], [20, 50, 1])
    together = np.split(is_chosen(rows, EVERY_PIECE, config()), [40, 99])
    for row in range(3):
        alone = is_chosen(rows.take(np.array([row])), EVERY_PIECE, config())
        assert (alone == together[row]).all()


def test_a_word_longer_than_the_budget_stays():
    """Nothing fits: no mask, and the search ends."""
    is_word_start = np.zeros(VOCAB, bool)
    rows = sequences([50] * 3, [50] * 3)
    assert not is_chosen(rows, is_word_start, config(15)).any()


@pytest.mark.parametrize(("quirks", "lowest"), [(False, 5), (True, 0)])
def test_replacements_are_80_10_10(quirks, lowest):
    """Random pieces are uniform; special ones are among them with quirks alone."""
    count = 200_000
    rows = sequences([count], [1])
    rows = Sequences(**rows.__dict__ | {"pieces": np.full(count + 1, 999, np.uint16)})
    new = replace(rows, np.arange(count), np.zeros(count, np.int64), config(quirks=quirks))
    kinds = len(range(lowest, VOCAB))
    masked = (new == 4).mean() - (quirks and 0.1 / kinds)
    kept = (new == 999).mean() - 0.1 / kinds
    tolerance = 5 * (0.25 / count) ** 0.5
    assert abs(masked - 0.8) < tolerance and abs(kept - 0.1) < tolerance
    random = new[(new != 4) & (new != 999)]
    assert random.min() == lowest and random.max() == 998
    counts = np.bincount(random, minlength=999)[5:999]
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert abs(chi_square - 993) < 5 * (2 * 993) ** 0.5
