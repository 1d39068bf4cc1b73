"""Batches of features for `fit`, in an order that is a function of (seed, step)."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from albert_tf.runtime import keyed_random
from albert_tf.tasks.features import Features

GROUP = 64  # batches whose units are sorted by length
# (an epoch's order of units, the place of its first unit among all, a key) -> another order.
Arrange = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


def training_batches(
    features: Features,
    batch_size: int,
    seed: int,
    first_step: int,
    steps: int,
    pad: bool,
    arrange: Arrange | None = None,
) -> tf.data.Dataset:
    """Return the batches of steps first_step ... steps - 1 as (inputs, targets) for `fit`.

    Each epoch contains all units in a keyed order of its own. Batches continue across the end of an
    epoch, so that a resumed run finds its position by arithmetic. With `pad`, batches are padded to
    `features.seq_length`; otherwise to what their longest unit needs. `arrange` changes the order.
    """
    count = len(features)
    first, end = first_step * batch_size, steps * batch_size

    def batch(units: tf.Tensor) -> tuple:
        inputs, targets = features.batch(units, features.seq_length if pad else None)
        return inputs, targets if len(targets) > 1 else next(iter(targets.values()))

    dataset = unit_stream(count, seed, first, arrange).take(end - first)
    dataset = dataset.batch(batch_size, drop_remainder=True).map(batch, tf.data.AUTOTUNE)
    options = tf.data.Options()
    # Each worker reads all units and takes its share of a batch: there are no files to divide.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.with_options(options).prefetch(4)


def unit_stream(
    count: int, seed: int, first: int, arrange: Arrange | None = None
) -> tf.data.Dataset:
    """Return unit numbers, int32, from position `first`; each epoch is range(count), shuffled."""

    def epoch_order(epoch: tf.Tensor) -> tf.data.Dataset:
        key = keyed_random.graph_stream_key(seed, keyed_random.UNIT_ORDER, epoch)
        order = keyed_random.graph_order(key, tf.range(count, dtype=tf.int64))
        if arrange is not None:
            key = keyed_random.graph_stream_key(seed, keyed_random.BATCH_ORDER, epoch)
            order = arrange(order, epoch * count, key)
        return tf.data.Dataset.from_tensor_slices(order)

    epochs = tf.data.Dataset.range(first // count, tf.int64.max)
    return epochs.flat_map(epoch_order).skip(first % count)


def by_length(lengths: np.ndarray, batch_size: int) -> Arrange:
    """Return what gives batches units of similar lengths, int [N].

    The units of `GROUP` batches are sorted by length, and all batches are shuffled. Those that an
    epoch shares with its neighbors stay as they are.
    """
    return _in_runs(lengths, batch_size, GROUP * batch_size)


def in_pairs(labels: np.ndarray) -> Arrange:
    """Return what puts units of the same label, int [N], side by side.

    Their pairs are those of a random order of the units of each label, and are shuffled. If the
    number of units of a label is odd, one of them has a partner of another label or none.
    """
    return _in_runs(labels, 2, len(labels))


def _in_runs(values: np.ndarray, run: int, group: int) -> Arrange:
    """Return what sorts each `group` of units by value and shuffles runs of them.

    Runs begin at multiples of their length among the units of all epochs.
    """

    def arrange(order: tf.Tensor, begin: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        first = -begin % run
        full = tf.maximum(tf.size(order, tf.int64) - first, 0) // run
        middle = order[first : first + full * run]
        value = tf.gather(tf.constant(values, tf.int64), middle)
        place = tf.range(full * run) // group * (int(values.max()) + 1) + value
        runs = tf.reshape(tf.gather(middle, tf.argsort(place, stable=True)), [full, run])
        runs = tf.gather(runs, keyed_random.graph_order(key, tf.range(full)))
        return tf.concat([order[:first], tf.reshape(runs, [-1]), order[first + full * run :]], 0)

    return arrange
