"""The order of training units: its distribution, over seeds, sizes and epochs.

Every statistic is held against that of random permutations, within 5 of its standard deviations.
"""

import numpy as np
import pytest

from albert_tf.runtime.keyed_random import UNIT_ORDER, order, stream_key
from finetuning.training.batches import GROUP, by_length, in_pairs, unit_stream

SEEDS, EPOCHS, BATCH = range(10), range(3), 32
SIZES = (100, 1_000, 3_668, 20_000, 67_349, 400_000)


def orders(size: int) -> np.ndarray:
    """int64 [seeds, epochs, size]"""
    keys = [[stream_key(seed, UNIT_ORDER, epoch) for epoch in EPOCHS] for seed in SEEDS]
    return np.array([[order(key, np.arange(size)) for key in row] for row in keys])


def correlations(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Of permutations, in standard deviations: 1 / sqrt(size - 1) (Spearman's rank correlation)."""
    size = rows.shape[-1]
    middle, variance = (size - 1) / 2, (size**2 - 1) / 12
    covariance = np.mean((rows - middle) * (columns - middle), axis=-1)
    return covariance / variance * np.sqrt(size - 1)


def is_normal(deviations: np.ndarray) -> bool:
    """Each within 5; the sum of their squares, a chi-square, within 5 of its own deviations."""
    squares = float(np.sum(deviations**2))
    too_large = np.any(np.abs(deviations) > 5)
    return not too_large and abs(squares - deviations.size) < 5 * (2 * deviations.size) ** 0.5


@pytest.mark.parametrize("size", [1, 5, 1_000])
def test_the_stream_has_each_epochs_keyed_order(size: int):
    """From any position; epochs are permutations."""
    keys = [stream_key(7, UNIT_ORDER, epoch) for epoch in range(4)]
    expected = [order(key, np.arange(size)) for key in keys]
    assert all(sorted(epoch) == list(range(size)) for epoch in expected)
    flat = np.concatenate(expected)
    for first in (0, 1, size, 2 * size + size // 2):
        found = next(unit_stream(size, 7, first).batch(len(flat) - first).as_numpy_iterator())
        np.testing.assert_array_equal(found, flat[first:])


@pytest.mark.parametrize("size", SIZES)
class TestDistribution:
    @pytest.mark.slow_parameters("400000")
    def test_the_place_of_a_unit_does_not_follow_from_its_number(self, size: int):
        assert is_normal(correlations(orders(size), np.arange(size)))

    @pytest.mark.slow_parameters("400000")
    def test_the_order_of_an_epoch_does_not_follow_from_another(self, size: int):
        every = orders(size)
        assert is_normal(correlations(every[:, 0], every[:, 1]))
        assert is_normal(correlations(every[:, 1], every[:, 2]))

    @pytest.mark.slow_parameters("400000")
    def test_the_order_of_a_seed_does_not_follow_from_another(self, size: int):
        every = orders(size)
        assert is_normal(correlations(every[:-1], every[1:]))

    @pytest.mark.slow_parameters("400000")
    def test_batches_of_sorted_labels_are_mixed(self, size: int):
        """Half of the units have label 1: hypergeometric in each batch, at every place alike."""
        batches = size // BATCH
        labels = orders(size)[..., : batches * BATCH] >= size // 2
        counts = labels.reshape(len(SEEDS), len(EPOCHS), batches, BATCH).sum(-1)
        share = (size - size // 2) / size
        variance = BATCH * share * (1 - share) * (size - BATCH) / (size - 1)
        deviations = (counts - BATCH * share) / variance**0.5
        squares = np.mean(deviations**2)
        assert abs(squares - 1) < 5 * (2 / deviations.size) ** 0.5
        first = deviations[:, :, : min(10, batches)]  # where a sorted table would have one label
        assert abs(first.mean()) < 5 / first.size**0.5


class TestByLength:
    def epochs(self, lengths: np.ndarray, batch: int, seed: int, count: int = 3) -> np.ndarray:
        stream = unit_stream(len(lengths), seed, 0, by_length(lengths, batch))
        return next(stream.batch(count * len(lengths)).as_numpy_iterator())

    @pytest.mark.parametrize(("size", "batch"), [(1, 4), (5, 4), (103, 8), (5_003, 7)])
    def test_each_epoch_has_every_unit_once_from_any_position(self, size: int, batch: int):
        lengths = np.random.default_rng(0).integers(1, 99, size)
        flat = self.epochs(lengths, batch, 3)
        for epoch in flat.reshape(3, size):
            assert sorted(epoch) == list(range(size))
        for first in (1, size, 2 * size + size // 2):
            stream = unit_stream(size, 3, first, by_length(lengths, batch))
            stream = stream.batch(len(flat) - first)
            np.testing.assert_array_equal(next(stream.as_numpy_iterator()), flat[first:])

    def test_a_batch_spans_a_share_of_the_lengths_of_its_group(self):
        """Of 64 sorted batches of distinct lengths, each spans about 1 / 64 of the range.

        In a later epoch too, whose batches begin within those of the one before; but not in those
        that two epochs share.
        """
        size, batch = 3 * GROUP * 8 + 3, 8
        flat = self.epochs(np.arange(size), batch, 0)
        rows = flat[: len(flat) // batch * batch].reshape(-1, batch)
        spans = rows.max(1) - rows.min(1)
        shared = {position // batch for position in (size, 2 * size)}
        narrow = np.delete(spans, [*shared, size * 3 // batch - 1])
        assert narrow.mean() < 2 * size / GROUP
        assert all(spans[place] > 4 * size / GROUP for place in shared)

    def test_long_batches_come_at_any_time(self):
        """The order of the batches by length is that of a random permutation."""
        size, batch = 40_000, 32
        deviations = []
        for seed in SEEDS:
            epoch = self.epochs(np.arange(size), batch, seed, 1)
            means = epoch[: size // batch * batch].reshape(-1, batch).mean(1)
            ranks = np.argsort(np.argsort(means))
            deviations.append(correlations(ranks, np.arange(len(ranks))))
        assert is_normal(np.array(deviations))

    def test_which_units_share_a_batch_differs_from_epoch_to_epoch(self):
        size, batch = GROUP * 8 * 4, 8
        flat = self.epochs(np.arange(size) // 40, batch, 0, 2)
        first, second = (
            {frozenset(row) for row in epoch.reshape(-1, batch).tolist()}
            for epoch in flat.reshape(2, size)
        )
        assert not first & second


class TestInPairs:
    @pytest.mark.parametrize(("each", "classes"), [(2, 1), (8, 7), (5, 4)])
    def test_units_of_a_label_are_side_by_side(self, each: int, classes: int):
        """In two epochs; with an odd number for each label, all but one of each two labels."""
        labels = np.repeat(np.arange(classes), each)
        size = len(labels)
        flat = next(unit_stream(size, 1, 0, in_pairs(labels)).batch(2 * size).as_numpy_iterator())
        assert [sorted(epoch) for epoch in flat.reshape(2, size)] == [list(range(size))] * 2
        for epoch in flat.reshape(2, size):
            pairs = labels[epoch].reshape(-1, 2)
            assert np.sum(pairs[:, 0] != pairs[:, 1]) == (each % 2) * classes // 2

    def test_a_partner_is_any_other_of_the_label(self):
        """Of the 8 units of a label, each of the 28 pairs in 1 of 7 epochs."""
        labels, epochs = np.repeat(np.arange(10), 8), 200
        stream = unit_stream(80, 5, 0, in_pairs(labels)).batch(80 * epochs)
        pairs = np.sort(next(stream.as_numpy_iterator()).reshape(-1, 2), axis=1)
        _, counts = np.unique(pairs, axis=0, return_counts=True)
        assert len(counts) == 280
        expected, deviation = epochs / 7, (epochs / 7 * 6 / 7) ** 0.5
        assert is_normal((counts - expected) / deviation / (280 / 279) ** 0.5)
