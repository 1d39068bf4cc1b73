"""Tests that both faces of the generator are splitmix64, uniform, and independent by stream."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.runtime import keyed_random

GOLDEN = 0x9E3779B97F4A7C15
# The first outputs of splitmix64 from seed 0 (Vigna's reference implementation).
PUBLISHED = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
DRAWS = 2**20


def chi_square(values: np.ndarray, bins: int) -> float:
    counts = np.bincount(values.astype(np.int64), minlength=bins)
    expected = len(values) / bins
    return float(((counts - expected) ** 2 / expected).sum())


def is_uniform(values: np.ndarray, bins: int) -> bool:
    """Chi-square has mean bins - 1 and variance 2 (bins - 1): within five standard deviations."""
    freedom = bins - 1
    return abs(chi_square(values, bins) - freedom) < 5 * (2 * freedom) ** 0.5


def test_the_published_vector():
    # Draw c of key k is splitmix64's output number c + 1 from the state k, counted from 0.
    assert keyed_random.bits(0, np.arange(2)).tolist() == PUBLISHED[1:]
    assert keyed_random.bits(2**64 - GOLDEN, np.arange(3)).tolist() == PUBLISHED
    assert keyed_random._mix_int(0) == PUBLISHED[0]


@given(
    key=st.integers(0, 2**64 - 1),
    counters=st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5),
)
@settings(max_examples=50, deadline=None)
def test_the_graph_draws_what_numpy_draws(key, counters):
    graph = keyed_random.graph_bits(tf.constant(key, tf.uint64), tf.constant(counters, tf.int64))
    assert graph.dtype == tf.uint64
    np.testing.assert_array_equal(
        graph.numpy(), keyed_random.bits(key, np.array(counters, np.int64))
    )


@given(
    key=st.integers(0, 2**64 - 1),
    counters=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5),
)
@settings(max_examples=50, deadline=None)
def test_the_graph_draws_32_bits_as_numpy_does(key, counters):
    graph = keyed_random.graph_bits32(tf.constant(key, tf.uint64), tf.constant(counters, tf.int32))
    assert graph.dtype == tf.uint32
    np.testing.assert_array_equal(
        graph.numpy(), keyed_random.bits32(key, np.array(counters, np.int32))
    )


def test_32_bits_are_murmurs_finalizer_of_the_key():
    """With a key below 2**32 and counter 0: fmix32, whose values for 1 and 2 are well known."""
    assert keyed_random.bits32(1, np.zeros(1)).tolist() == [0x514E28B7]
    assert keyed_random.bits32(2, np.zeros(1)).tolist() == [0x30F4C306]


@pytest.mark.parametrize("shift", [0, 12, 24])
def test_32_bit_draws_are_uniform(shift):
    """Low, middle and high byte: of one key's draws, and of the same draw of many keys."""
    draws = keyed_random.bits32(keyed_random.stream_key(0, keyed_random.TILE), np.arange(DRAWS))
    keys = keyed_random.bits(
        keyed_random.stream_key(0, keyed_random.TILE), np.arange(20_000)
    ).tolist()
    nested = np.array([keyed_random.bits32(key, np.zeros(1))[0] for key in keys])
    assert is_uniform(draws >> np.uint32(shift) & np.uint32(255), 256)
    assert is_uniform(nested >> np.uint32(shift) & np.uint32(255), 256)


def test_32_bit_draws_of_neighbours_and_of_two_records_are_independent():
    key = keyed_random.stream_key(5, keyed_random.TILE)
    one, two = keyed_random.bits(key, np.arange(2)).tolist()
    draws, other = (keyed_random.bits32(k, np.arange(DRAWS)) >> np.uint32(28) for k in (one, two))
    assert is_uniform(draws[:-1] * np.uint32(16) + draws[1:], 256)
    assert is_uniform(draws * np.uint32(16) + other, 256)


@given(
    seed=st.integers(-(2**63), 2**64),
    stream=st.integers(1, 9),
    epochs=st.lists(st.integers(0, 2**62), min_size=1, max_size=3),
)
@settings(max_examples=50, deadline=None)
def test_the_graphs_stream_keys_are_numpys(seed, stream, epochs):
    graph = keyed_random.graph_stream_key(seed, stream, tf.constant(epochs, tf.int64))
    assert graph.numpy().tolist() == [keyed_random.stream_key(seed, stream, e) for e in epochs]


def test_keys_broadcast_against_counters():
    keys = tf.constant([[1], [2]], tf.uint64)
    graph = keyed_random.graph_bits(keys, tf.range(3, dtype=tf.int64)[None]).numpy()
    np.testing.assert_array_equal(graph, [keyed_random.bits(k, np.arange(3)) for k in (1, 2)])


@pytest.mark.parametrize("shift", [0, 24, 56])
def test_draws_are_uniform(shift):
    """Low, middle and high byte: of one key's draws, and of the first draw of a million keys."""
    draws = keyed_random.bits(keyed_random.stream_key(0, keyed_random.PAIR), np.arange(DRAWS))
    nested = np.array([keyed_random.bits(int(key), np.zeros(1))[0] for key in draws[:20_000]])
    assert is_uniform(draws >> np.uint64(shift) & np.uint64(255), 256)
    assert is_uniform(nested >> np.uint64(shift) & np.uint64(255), 256)


@pytest.mark.parametrize("limit", [1, 7, 29_995, 2**31 - 1])
def test_below_stays_below_and_is_uniform(limit):
    draws = keyed_random.bits(3, np.arange(200_000))
    below = keyed_random.graph_below(tf.constant(draws), limit).numpy().astype(np.int64)
    high = draws >> np.uint64(32)
    np.testing.assert_array_equal(below, (high * np.uint64(limit)) >> np.uint64(32))
    assert below.min() >= 0 and below.max() < limit
    bins = min(limit, 100)
    if limit > 1:
        assert is_uniform(below * bins // limit, bins)


OTHERS = {
    "stream": (0, keyed_random.NGRAM, 0),
    "epoch": (0, keyed_random.TILE, 1),
    "seed": (1, keyed_random.TILE, 0),
    "stream and epoch": (0, keyed_random.NGRAM, 1),
}


@pytest.mark.parametrize("other", OTHERS)
def test_keys_that_differ_in_one_part_are_independent(other):
    """16 x 16 table of the high bits of both: uniform, so neither tells anything of the other."""
    one = keyed_random.bits(
        keyed_random.stream_key(0, keyed_random.TILE, 0), np.arange(DRAWS)
    ) >> np.uint64(60)
    two = keyed_random.bits(keyed_random.stream_key(*OTHERS[other]), np.arange(DRAWS)) >> np.uint64(
        60
    )
    assert is_uniform(one * np.uint64(16) + two, 256)


def test_neighbouring_draws_are_independent():
    draws = keyed_random.bits(
        keyed_random.stream_key(5, keyed_random.TILE), np.arange(DRAWS)
    ) >> np.uint64(60)
    assert is_uniform(draws[:-1] * np.uint64(16) + draws[1:], 256)


def test_streams_and_epochs_have_keys_of_their_own():
    keys = {
        keyed_random.stream_key(s, t, e) for s in range(20) for t in range(1, 10) for e in range(20)
    }
    assert len(keys) == 20 * 9 * 20


def test_each_purpose_has_a_stream_of_its_own():
    """Draws of two purposes with one key would be the same."""
    names = [
        name for name, value in vars(keyed_random).items() if name.isupper() and name[0] != "_"
    ]
    streams = {getattr(keyed_random, name) for name in names}
    assert len(streams) == len(names) >= 17
