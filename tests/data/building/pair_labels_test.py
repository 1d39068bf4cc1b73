"""Tests that pairs get labels half and half, and that neither lengths nor masks tell them."""

import numpy as np

from data.building import pair_labels
from data.building.segments import Pairs, segment_pairs
from data.building.sequences import Sequences
from data.building.static_masking import StaticMasking, choose

LONE = 4000


def documents(lengths: list[int]) -> tuple[np.ndarray, Pairs]:
    """Pieces numbered through, and the pairs of documents of one sentence, and with two."""
    bounds = np.cumsum([0, *lengths])
    keys = np.arange(len(lengths), dtype=np.uint64)
    return np.arange(bounds[-1]), segment_pairs(bounds, bounds, keys, 61)


def shares(pairs: Pairs) -> np.ndarray:
    """How often the first segment is the shorter one, as long, the longer one; float [3]."""
    return np.bincount(np.sign(pairs.first_length - pairs.second_length) + 1, minlength=3) / len(
        pairs.keys
    )


def test_lone_sentences_are_halved_before_the_nearest_word():
    """Of 7 pieces with words at 0, 2, 5 the cut is at 2 or 5; without a word it is in the middle.

    A single piece has no halves.
    """
    lengths = [7] * 300 + [1] + [9] * 300
    ids, pairs = documents(lengths)
    words = np.concatenate([7 * n + np.array([0, 2, 5]) for n in range(300)])
    words = np.append(words, [2100, *(2101 + 9 * np.arange(300)), *(2107 + 9 * np.arange(100))])
    found = pair_labels.paired(pairs, ids, np.isin(ids, words))
    assert (found.document == np.delete(np.arange(601), 300)).all()
    assert (found.second == found.first + found.first_length).all()
    assert (found.first_length + found.second_length == np.delete(lengths, 300)).all()
    for rows, cuts in ((slice(0, 300), {2, 5}), (slice(300, 400), {6}), (slice(400, 600), {4, 5})):
        assert set(found.first_length[rows].tolist()) == cuts


def test_lengths_do_not_tell_which_half_came_first():
    """With words of one, two or three pieces; sentences of 2 to 40."""
    rng = np.random.default_rng(0)
    ids, pairs = documents(rng.integers(2, 41, LONE).tolist())
    found = pair_labels.paired(pairs, ids, rng.random(len(ids)) < 0.5)
    shorter, _, longer = shares(found)
    assert abs(shorter - longer) < 5 / LONE**0.5


def test_half_of_the_labelled_pairs_are_swapped():
    bounds = np.cumsum([0, *[3, 4] * 4000])
    pairs = segment_pairs(bounds, bounds[::2], np.arange(4000, dtype=np.uint64), 61)
    swapped = pair_labels.swapped(pairs)
    label = swapped.label == 1
    assert abs(label.mean() - 0.5) < 5 * 0.5 / 4000**0.5
    has_two = pairs.second_length > 0
    assert (swapped.first[label] == pairs.second[label]).all()
    assert (swapped.second_length[label] == pairs.first_length[label]).all()
    assert (swapped.first[~label] == pairs.first[~label]).all() and has_two.any()


def test_masks_do_not_tell_the_label():
    """Both draw from the pair's key: no mask of segments of 30 + 30 words leans to a label."""
    bounds = np.cumsum([0, *[30, 30] * LONE])
    pairs = pair_labels.swapped(
        segment_pairs(bounds, bounds[::2], np.arange(LONE, dtype=np.uint64), 60)
    )
    sequences = Sequences(
        keys=pairs.keys,
        documents=pairs.document,
        labels=pairs.label.astype(np.uint8),
        first=pairs.first_length.astype(np.int32),
        second=pairs.second_length.astype(np.int32),
        pieces=np.full(bounds[-1], 10, np.uint16),
    )
    masking = StaticMasking(0.15, 3, 10, 4, (0, 1, 2, 3, 4), 50)
    chosen = choose(sequences, np.ones(50, bool), masking)
    in_second = np.bincount(chosen // 60, weights=chosen % 60 >= sequences.first[chosen // 60])
    means = [in_second[pairs.label == label] for label in (0, 1)]
    error = (sum(m.var() / len(m) for m in means)) ** 0.5
    assert abs(means[0].mean() - means[1].mean()) < 5 * error
