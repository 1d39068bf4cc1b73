"""Tests of pairs of segments from documents: nothing reordered, lost only where counted."""

import random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from data.building import segments

EVERY_PIECE = np.ones(1_000_000, bool)  # each a word of its own
SENTENCES = st.lists(st.integers(1, 30), min_size=1, max_size=20)


class Pair(NamedTuple):
    first: list[int]
    second: list[int]
    lost: int
    label: int


def arrays(documents: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Documents as lengths of sentences -> bounds, places of documents."""
    bounds = np.cumsum([0, *(n for document in documents for n in document)])
    return bounds, np.cumsum([0, *map(sum, documents)])


def pairs_of(columns: segments.Pairs) -> list[Pair]:
    rows = zip(*(c.tolist() for c in columns), strict=True)
    return [
        Pair([*range(a, a + n)], [*range(b, b + m)], lost, label)
        for a, n, b, m, label, _, lost, _ in rows
    ]


def segment_pairs(
    lengths, max_pieces, seed=0, is_word_start=EVERY_PIECE, **changes: float
) -> list[Pair]:
    """The pairs of one document; the pieces are numbered through it."""
    bounds, documents = arrays([list(lengths)])
    ids = np.arange(bounds[-1])
    bounds = segments.split_long_sentences(bounds, ids, is_word_start, max_pieces)
    keys = np.array([seed], np.uint64)
    return pairs_of(segments.segment_pairs(bounds, documents, keys, max_pieces, **changes))


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        # Sentences are taken until the target of 10 is reached.
        ((5, 5, 5, 5), [(10, 0, True), (10, 0, True)]),
        # One that overshoots begins the next chunk where 8 pieces are there without it, ...
        ((4, 4, 4, 4, 4, 4), [(8, 0, True)] * 3),
        # ... else it is taken, and the pair is cut to fit.
        ((3, 4, 4, 4, 4), [(10, 1, True), (8, 0, True)]),
        # Less than the target at the end of the document is a pair as well.
        ((5, 5, 2, 2), [(10, 0, True), (4, 0, True)]),
        # One long sentence is not enough: there must be two.
        ((10, 1, 5), [(10, 1, True), (5, 0, False)]),
        ((10, 1, 5, 1), [(10, 1, True), (6, 0, True)]),
        # A sentence of more than 10 is cut into parts of 2; nothing of it is lost.
        ((20,), [(10, 0, True), (10, 0, True)]),
        ((5, 20, 1), [(9, 0, True), (10, 0, True), (7, 0, True)]),
        # A last sentence that stands alone has no second segment.
        ((5, 5, 3), [(10, 0, True), (3, 0, False)]),
        ((5, 5, 30), [(10, 0, True)] * 4),
        ((7,), [(7, 0, False)]),
        ((), []),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_hand_made_documents(lengths, expected, seed):
    pairs = segment_pairs(lengths, 10, seed, short_probability=0)
    found = [(len(p.first) + len(p.second), p.lost, bool(p.second)) for p in pairs]
    assert found == expected


def test_the_cut_falls_between_any_two_sentences():
    cuts = set()
    for seed in range(50):
        (pair,) = segment_pairs((2, 3, 5), 10, seed, short_probability=0)
        assert pair.first + pair.second == list(range(10))
        cuts.add(len(pair.first))
    assert cuts == {2, 5}


@given(SENTENCES, st.integers(2, 40), st.integers(0, 9))
@hypothesis_settings(deadline=None)
def test_nothing_is_reordered_and_what_is_lost_is_counted(lengths, max_pieces, seed):
    ends = np.cumsum(lengths).tolist()
    bounds = {0, *ends}
    # A long sentence may be cut at any word, and here each piece is one.
    for length, end in zip(lengths, ends, strict=True):
        bounds |= set(range(end - length, end)) if length > max_pieces else set()
    pairs = segment_pairs(lengths, max_pieces, seed)
    kept = [piece for pair in pairs for piece in pair.first + pair.second]
    assert kept == sorted(set(kept))
    assert len(kept) + sum(pair.lost for pair in pairs) == sum(lengths)
    for pair in pairs:
        assert 1 <= len(pair.first) and len(pair.first) + len(pair.second) <= max_pieces
        for segment in filter(None, (pair.first, pair.second)):
            assert segment == list(range(segment[0], segment[-1] + 1))  # cut at the ends only
        if pair.lost == 0:
            assert {pair.first[0], pair.first[-1] + 1} <= bounds  # whole sentences
            if pair.second:
                assert pair.second[0] == pair.first[-1] + 1
        else:
            assert len(pair.first) + len(pair.second) == max_pieces  # no more lost than needed
    assert all(pair.second for pair in pairs[:-1])


def test_the_place_of_the_separator_does_not_tell_the_order():
    """Pairs cut to parity are (31, 30) as often as (30, 31): else SOP could count pieces."""
    pairs = [segment_pairs((50, 50), 61, seed, short_probability=0)[0] for seed in range(2000)]
    longer = sum(len(pair.first) == 31 for pair in pairs)
    assert {len(pair.first) for pair in pairs} == {30, 31}
    assert abs(longer - 1000) < 5 * (2000 / 4) ** 0.5


@given(st.integers(41, 300), st.integers(0, 9), st.integers(1, 15))
@hypothesis_settings(deadline=None)
def test_a_long_sentence_loses_nothing_and_is_cut_before_words(length, seed, word):
    """Of words of `word` pieces; longer ones than a fifth of a sequence are cut inside."""
    is_word_start = np.arange(1000) % word == 0
    pairs = segment_pairs([length], 40, seed, is_word_start)
    assert [p for pair in pairs for p in pair.first + pair.second] == list(range(length))
    if word <= 8:
        parts = [part for pair in pairs for part in (pair.first, pair.second) if part]
        assert all(is_word_start[part[0]] for part in parts)
    assert all(pair.second and pair.lost == 0 for pair in pairs[:-1])


def test_one_chunk_in_ten_has_a_shorter_target_uniform_from_two():
    """With sentences of one piece the target shows in the length."""
    pairs = segment_pairs([1] * 1_000_000, 51)[:-1]
    sizes = np.array([len(pair.first) + len(pair.second) for pair in pairs])
    assert sizes.min() == 2 and sizes.max() == 51
    short = sizes < 51
    expected = 0.1 * 49 / 50  # the uniform draw from [2, 51] may be 51 as well
    tolerance = 5 * (expected * (1 - expected) / len(sizes)) ** 0.5
    assert abs(short.mean() - expected) < tolerance
    counts = np.bincount(sizes[short])[2:51]
    chi_square = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert abs(chi_square - 48) < 5 * (2 * 48) ** 0.5


def test_front_and_back_lose_about_the_same():
    """90 coins, more than one draw has bits: of 190 and 110 pieces, 100 and 100 are left."""
    pairs = [segment_pairs((190, 110), 200, seed, short_probability=0)[0] for seed in range(500)]
    assert {(len(p.first), len(p.second), p.lost) for p in pairs} == {(100, 100, 100)}
    front = sum(pair.first[0] for pair in pairs)
    assert abs(front - 500 * 45) < 5 * (500 * 90 / 4) ** 0.5


def test_documents_do_not_mix_and_their_keys_decide_alone():
    rng = random.Random(1)
    documents = [rng.choices(range(1, 20), k=rng.randint(0, 60)) for _ in range(40)]
    keys = np.arange(100, 140, dtype=np.uint64)
    bounds, places = arrays(documents)
    together = segments.segment_pairs(bounds, places, keys, 40)
    for number, document in enumerate(documents):
        alone = segments.segment_pairs(*arrays([document]), keys[number : number + 1], 40)
        mine = together.document == number
        assert (together.keys[mine] == alone.keys).all()
        assert (together.first[mine] - places[number] == alone.first).all()
        assert (together.second_length[mine] == alone.second_length).all()
        ends = together.second[mine] + together.second_length[mine]
        assert (ends <= places[number + 1]).all()
    assert len(set(together.keys.tolist())) == len(together.keys)


def reference(documents, max_pieces, seed=0, **changes: float):
    bounds, places = arrays(documents)
    keys = np.arange(seed, seed + len(documents), dtype=np.uint64)
    return segments.reference_pairs(bounds, places, keys, max_pieces, **changes)


def test_the_reference_gives_lone_sentences_a_random_partner_and_label_1():
    """Documents of one sentence of 4, of a limit of 10: the partner has the 6 that are missing."""
    pairs = reference([[4]] * 300, 10, short_probability=0)
    partner = pairs.second // 4
    assert (pairs.label == 1).all() and (pairs.first // 4 == pairs.document).all()
    assert (partner != pairs.document).all() and len(set(partner.tolist())) > 100
    assert (pairs.second_length == 4).all()  # a partner of one sentence has no more
    # A chunk of several sentences is 1 where it is swapped: half of them.
    pairs = reference([[2, 2, 2]] * 2000, 10, short_probability=0)
    swapped = pairs.first > pairs.second
    assert (swapped == (pairs.label == 1)).all()
    assert abs(swapped.mean() - 0.5) < 5 * 0.5 / 2000**0.5
    assert (pairs.first_length + pairs.second_length == 6).all()


def test_the_reference_takes_sentences_whole_and_cuts_them():
    """A sentence that reaches the target is a chunk, its partner one sentence at least."""
    pairs = reference([[50], [3, 3]], 10, short_probability=0)
    alone = pairs.document == 0
    assert alone.sum() == 1  # 50 pieces are one chunk: the rest of them is lost
    assert pairs.first_length[alone].item() + pairs.second_length[alone].item() == 10
    assert pairs.lost[alone].item() == 50 + 3 - 10


def test_the_reference_draws_short_targets_once_for_a_document():
    """Of sentences of one piece: all but the last of a document's chunks have one length."""
    pairs = reference([[1] * 500] * 1000, 41)
    sizes = pairs.first_length + pairs.second_length
    short = 0
    for number in range(1000):
        mine = sizes[pairs.document == number][:-1]
        assert len(set(mine.tolist())) == 1
        short += mine[0] < 41
    assert abs(short - 1000 * 0.1 * 39 / 40) < 5 * 90**0.5
