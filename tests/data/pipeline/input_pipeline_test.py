"""Tests that batches are pure functions of (seed, epoch, record): layout, labels, order, seeks."""

from itertools import islice

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.runtime.errors import ConfigError
from data.objectives.masking import MaskingConfig
from data.objectives.pair_objective import NoPairs
from data.objectives.registry import ObjectiveConfig
from data.objectives.sentence_order import SentenceOrder
from data.pipeline.batches import (
    Records,
    evaluation_batches,
    training_batches,
)
from data.pipeline.record_stream import record_stream, seek
from data.show_records import original_ids

MASKING = MaskingConfig()
FALLING = MaskingConfig(rate=0.21, first_rate=0.58, whole_words=False)
SOP, NONE = SentenceOrder(), NoPairs()
SIZES = (5, 0, 8, 1, 9)  # records per shard: unequal, one of them empty; 23 in all


def numbered(number: int, first: int = 3, second: int = 4) -> tuple:
    """A record of one-piece words that tells its number: every piece is 5 + number."""
    size = first + second
    return [5 + number] * size, [True] * size, first


@pytest.fixture(scope="module")
def sharded(write_records, tmp_path_factory) -> Records:
    """23 records that tell their numbers, in five shards; number 7 has one segment."""
    numbers = iter(range(sum(SIZES)))
    shards = [[numbered(n, second=4 * (n != 7)) for n in islice(numbers, s)] for s in SIZES]
    return write_records(tmp_path_factory.mktemp("records") / "sharded", shards, 16)


@pytest.fixture(scope="module")
def epochs(sharded):
    """Each batch is an epoch of `sharded`."""
    return training_batches(sharded, SOP, MASKING, 23, seed=0)


@pytest.fixture(scope="module")
def in_order(sharded):
    """`sharded`, for evaluation, in batches of 4."""
    return evaluation_batches(sharded, SOP, MASKING, 4)


def rows(batches, count: int) -> list[dict[str, np.ndarray]]:
    return list(batches.take(count).as_numpy_iterator())


def joined(batches: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def numbers_of(batch: dict[str, np.ndarray]) -> list[int]:
    return (original_ids(batch)[:, 1] - 5).tolist()


def assert_same(one: list[dict], two: list[dict]) -> None:
    assert len(one) == len(two) > 0
    for left, right in zip(one, two, strict=True):
        assert left.keys() == right.keys()
        for name, value in left.items():
            np.testing.assert_array_equal(value, right[name], name)


def test_both_layouts_by_hand(write_records, tmp_path):
    """A = 10 11 12, B = 20 21 in a sequence of 16, with and without the swap."""
    record = ([10, 11, 12, 20, 21], [True] * 5, 3)
    records = write_records(tmp_path / "one", [[record]], 16)
    batch = joined(rows(training_batches(records, SOP, MASKING, 1, seed=0), 40))
    layouts = {
        0: ([2, 10, 11, 12, 3, 20, 21, 3], [0, 0, 0, 0, 0, 1, 1, 1]),
        1: ([2, 20, 21, 3, 10, 11, 12, 3], [0, 0, 0, 0, 1, 1, 1, 1]),
    }
    assert set(batch["pair_label"].tolist()) == {0, 1}
    for row, label in enumerate(batch["pair_label"].tolist()):
        ids, types = layouts[label]
        assert original_ids(batch)[row].tolist() == ids + [0] * 8
        assert batch["input_type_ids"][row].tolist() == types + [0] * 8
        assert batch["input_mask"][row].tolist() == [1] * 8 + [0] * 8
        assert batch["pair_weight"][row] == 1
        assert batch["masked_lm_weights"][row].tolist() == [1, 0]  # round(0.15 * 8) of 2 slots


def test_one_segment_has_one_separator_and_no_pair(write_records, tmp_path):
    records = write_records(tmp_path / "one", [[([10, 11, 12], [True] * 3, 3)]], 16)
    batch = joined(rows(training_batches(records, SOP, MASKING, 1, seed=0), 20))
    assert (original_ids(batch) == [2, 10, 11, 12, 3, *[0] * 11]).all()
    assert (batch["input_mask"] == [1] * 5 + [0] * 11).all()
    assert not batch["input_type_ids"].any()
    assert not batch["pair_weight"].any() and not batch["pair_label"].any()


def test_a_full_record_fills_the_sequence(write_records, tmp_path):
    record = ([*range(10, 23)], [True] * 13, 6)
    records = write_records(tmp_path / "one", [[record]], 16)
    (batch,) = rows(evaluation_batches(records, NONE, MASKING, 1), 1)
    expected = [2, *range(10, 16), 3, *range(16, 23), 3]
    assert original_ids(batch)[0].tolist() == expected
    assert batch["input_mask"].all()


def test_words_stay_whole_when_segments_swap(write_records, tmp_path):
    """A = (10 11) (12), B = (20 21 22): the words of both layouts, from many draws."""
    record = ([10, 11, 12, 20, 21, 22], [True, False, True, True, False, False], 3)
    records = write_records(tmp_path / "one", [[record]], 16)
    masking = MaskingConfig(rate=0.3, max_ngram=1)  # round(0.3 * 9) = 3 pieces
    batch = joined(rows(training_batches(records, SOP, masking, 1, seed=1), 60))
    real = batch["masked_lm_weights"] > 0
    for swapped in (0, 1):
        seen = {
            tuple(batch["masked_lm_ids"][row][real[row]])
            for row in np.flatnonzero(batch["pair_label"] == swapped)
        }
        assert seen == {(10, 11, 12), (20, 21, 22)}


def test_dtypes_and_static_shapes(epochs, in_order):
    for size, batches in ((23, epochs), (4, in_order)):
        shapes = {name: (spec.shape, spec.dtype) for name, spec in batches.element_spec.items()}
        assert shapes == {
            "input_word_ids": ((size, 16), "int32"),
            "input_mask": ((size, 16), "int32"),
            "input_type_ids": ((size, 16), "int32"),
            "masked_lm_positions": ((size, 2), "int32"),
            "masked_lm_ids": ((size, 2), "int32"),
            "masked_lm_weights": ((size, 2), "float32"),
            "pair_label": ((size,), "int32"),
            "pair_weight": ((size,), "float32"),
        }


def test_half_of_all_pairs_are_swapped(epochs):
    """Within three standard errors, over 200 epochs of the 22 records that have a pair."""
    batch = joined(rows(epochs, 200))
    has_pair = batch["pair_weight"] == 1
    assert has_pair.sum() == 200 * 22
    assert abs(batch["pair_label"][has_pair].mean() - 0.5) < 3 * 0.5 / (200 * 22) ** 0.5
    assert not batch["pair_label"][~has_pair].any()
    # Neither always the same records nor whole epochs.
    by_epoch = batch["pair_label"].reshape(200, 23).mean(axis=1)
    assert 0.05 < by_epoch.std() < 0.2  # a fair coin: 0.5 / sqrt(23) = 0.104


def test_the_objective_none_never_swaps(sharded):
    batch = joined(rows(training_batches(sharded, NONE, MASKING, 23, seed=0), 5))
    assert not batch["pair_label"].any() and not batch["pair_weight"].any()
    type_ids = batch["input_type_ids"].sum(axis=1)
    assert set(type_ids.tolist()) == {0, 5}  # A has 3 pieces: B and its [SEP] are 5
    with pytest.raises(ConfigError, match="`objective.pair` must be one of sop, nsp, none.*'swap'"):
        ObjectiveConfig("swap")


def test_every_epoch_holds_every_record_once_and_is_another(epochs):
    epochs = rows(epochs, 4)
    orders = [numbers_of(epoch) for epoch in epochs]
    assert all(sorted(order) == list(range(23)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4
    by_record = []
    for order, epoch in zip(orders, epochs, strict=True):
        at = np.argsort(order)
        by_record.append({name: value[at] for name, value in epoch.items()})
    one, two = by_record[:2]
    for name in ("masked_lm_positions", "pair_label"):
        assert (one[name] != two[name]).any()


def test_shards_and_the_records_of_a_shard_come_in_another_order(epochs):
    """Each shard's records stand together; both orders change from epoch to epoch."""
    shard_of = np.repeat(np.arange(5), SIZES)
    shard_orders, orders_in_last = set(), set()
    for epoch in rows(epochs, 12):
        numbers = np.array(numbers_of(epoch))
        shards = shard_of[numbers]
        changes = np.flatnonzero(np.diff(shards)) + 1
        shard_orders.add(tuple(shards[[0, *changes]].tolist()))
        orders_in_last.add(tuple(numbers[shards == 4].tolist()))
        assert len(changes) == 3
    assert len(orders_in_last) == 12 and len(shard_orders) > 6  # of 9! and of 4! = 24


@pytest.mark.parametrize(
    ("batch_size", "starts"), [(4, (2, 6)), pytest.param(50, (1,), marks=pytest.mark.slow)]
)
def test_a_seek_is_the_uninterrupted_stream(sharded, batch_size, starts):
    """Bit for bit, from starts within a shard and on both sides of an epoch's border."""
    whole = rows(training_batches(sharded, SOP, MASKING, batch_size, seed=3), 12)
    for start in starts:
        batches = training_batches(sharded, SOP, MASKING, batch_size, seed=3, start_step=start)
        assert_same(rows(batches, 12 - start), whole[start:])


def test_the_masking_rate_changes_with_the_step(sharded):
    """round(rate * pieces) are masked at each step, on each worker, and after a seek."""
    whole = rows(training_batches(sharded, SOP, FALLING, 12, 0, schedule_steps=8), 10)
    for step, batch in enumerate(whole):
        rate = np.float32(0.21 + 0.37 * max(0, 8 - step) / 8)
        pieces = batch["input_mask"].sum(axis=1).astype(np.float32)
        wanted = np.round(rate * pieces)
        np.testing.assert_array_equal(batch["masked_lm_weights"].sum(axis=1), wanted)
    assert wanted.sum() < whole[0]["masked_lm_weights"].sum() / 2
    first, second = (
        rows(training_batches(sharded, SOP, FALLING, 12, 0, 3, 2, worker, 3, 8), 8)
        for worker in (0, 1)
    )
    pairs = zip(first[::2], first[1::2], second[::2], second[1::2], strict=True)
    assert_same([joined(list(parts)) for parts in pairs], whole[3:7])


@pytest.mark.parametrize("seed", [0, 1])
def test_every_record_of_three_epochs_is_sought_where_it_is(sharded, seed):
    whole = [(int(i), int(e)) for _, i, e in record_stream(sharded.shards(), seed, 0).take(69)]
    assert [epoch for _, epoch in whole] == [0] * 23 + [1] * 23 + [2] * 23
    sizes = np.array([size for size in SIZES if size])
    shards = np.repeat(np.arange(4), sizes)[[index for index, _ in whole]]
    turn = skip = 0
    for start in range(69):
        assert seek(sizes, seed, start) == (turn, skip)
        skip += 1
        if skip == sizes[shards[start]]:
            turn, skip = turn + 1, 0


def test_batches_have_no_end(sharded):
    """Else TensorFlow prepares several workers for partial batches, of any number of rows."""
    batches = training_batches(sharded, SOP, MASKING, 12, 0)
    assert batches.cardinality() == tf.data.INFINITE_CARDINALITY


@pytest.mark.parametrize(
    ("num_workers", "per_replica"), [pytest.param(4, None, marks=pytest.mark.slow), (2, 3)]
)
def test_workers_together_read_what_one_reads(sharded, num_workers, per_replica):
    """By rows: worker 0 has the first of each global batch, and so on; after a seek as well.

    A worker with two replicas gets a batch for each, one behind the other.
    """
    arguments = (sharded, SOP, MASKING, 12, 0, 1, num_workers)
    whole = rows(training_batches(*arguments[:-1]), 4)
    per_step = 12 // num_workers // (per_replica or 12 // num_workers)
    workers = [
        rows(training_batches(*arguments, worker, per_replica), 4 * per_step)
        for worker in range(num_workers)
    ]
    steps = [
        joined([part for parts in workers for part in parts[at : at + per_step]])
        for at in range(0, 4 * per_step, per_step)
    ]
    assert_same(steps, whole)


@pytest.mark.parametrize("change", [{"num_workers": 5}, {"batch_size_per_replica": 5}])
def test_a_batch_that_cannot_be_shared_is_refused(sharded, change):
    with pytest.raises(ConfigError, match="`loop.global_batch_size` must be a multiple.*: 12"):
        training_batches(sharded, SOP, MASKING, 12, 0, **change)


@pytest.mark.slow_parameters("23-1", "30-1")
@pytest.mark.parametrize(("batch_size", "num_batches"), [(4, 6), (23, 1), (30, 1)])
def test_evaluation_sees_every_record_once_in_order(sharded, in_order, batch_size, num_batches):
    found = in_order if batch_size == 4 else evaluation_batches(sharded, SOP, MASKING, batch_size)
    batches = list(found.as_numpy_iterator())
    assert len(batches) == num_batches
    batch = joined(batches)
    numbers = np.array(numbers_of(batch))
    assert numbers[:23].tolist() == list(range(23))
    # The rest is filled with copies that count for nothing.
    assert not batch["masked_lm_weights"][23:].any() and not batch["pair_weight"][23:].any()
    assert batch["masked_lm_weights"][:23].any(axis=1).all()
    assert batch["pair_weight"].sum() == 22


@pytest.mark.slow
def test_evaluation_is_the_same_each_time_whatever_the_batch(sharded, in_order):
    first = list(in_order.as_numpy_iterator())
    assert_same(first, list(in_order.as_numpy_iterator()))
    (whole,) = evaluation_batches(sharded, SOP, MASKING, 23).as_numpy_iterator()
    assert_same([whole], [{name: value[:23] for name, value in joined(first).items()}])
    (other,) = evaluation_batches(sharded, SOP, MASKING, 23, seed=1).as_numpy_iterator()
    assert (other["masked_lm_positions"] != whole["masked_lm_positions"]).any()


def test_another_seed_is_another_stream(sharded, epochs):
    (one,), (two,) = rows(epochs, 1), rows(training_batches(sharded, SOP, MASKING, 23, 1), 1)
    assert numbers_of(one) != numbers_of(two)
