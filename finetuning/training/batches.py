"""Batches of features for `fit`, in an order that is a function of (seed, step)."""

import numpy as np
import tensorflow as tf

from albert_tf.runtime import keyed_random
from albert_tf.tasks.features import Features

GROUP = 64  # batches whose units are sorted by length


def training_batches(
    features: Features,
    batch_size: int,
    seed: int,
    first_step: int,
    steps: int,
    pad: bool,
    group_by_length: bool = False,
) -> tf.data.Dataset:
    """Return the batches of steps first_step ... steps - 1 as (inputs, targets) for `fit`.

    Each epoch contains all units in a keyed order of its own. Batches continue across the end of an
    epoch, so that a resumed run finds its position by arithmetic. With `pad`, batches are padded to
    `features.seq_length`; otherwise to what their longest unit needs. `group_by_length` gives most
    batches units of similar lengths; see `grouped`.
    """
    count = len(features)
    first, end = first_step * batch_size, steps * batch_size

    def batch(units: tf.Tensor) -> tuple:
        inputs, targets = features.batch(units, features.seq_length if pad else None)
        return inputs, targets if len(targets) > 1 else next(iter(targets.values()))

    lengths = features.unit_lengths if group_by_length else None
    dataset = unit_stream(count, seed, first, batch_size, lengths).take(end - first)
    dataset = dataset.batch(batch_size, drop_remainder=True).map(batch, tf.data.AUTOTUNE)
    options = tf.data.Options()
    # Each worker reads all units and takes its share of a batch: there are no files to divide.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.with_options(options).prefetch(4)


def unit_stream(
    count: int, seed: int, first: int, batch_size: int = 1, lengths: np.ndarray | None = None
) -> tf.data.Dataset:
    """Return unit numbers, int32, from position `first`; each epoch is range(count), shuffled.

    With the `lengths` of the units, int [count], they are `grouped`.
    """

    def epoch_order(epoch: tf.Tensor) -> tf.data.Dataset:
        key = keyed_random.graph_stream_key(seed, keyed_random.UNIT_ORDER, epoch)
        order = keyed_random.graph_order(key, tf.range(count, dtype=tf.int64))
        if lengths is not None:
            key = keyed_random.graph_stream_key(seed, keyed_random.BATCH_ORDER, epoch)
            order = grouped(order, lengths, batch_size, -epoch * count % batch_size, key)
        return tf.data.Dataset.from_tensor_slices(order)

    epochs = tf.data.Dataset.range(first // count, tf.int64.max)
    return epochs.flat_map(epoch_order).skip(first % count)


def grouped(
    order: tf.Tensor, lengths: np.ndarray, batch_size: int, first: tf.Tensor, key: tf.Tensor
) -> tf.Tensor:
    """Return an epoch's order of units, int32 [N], in batches of similar lengths.

    The units of `GROUP` batches are sorted by length, and all batches are shuffled. Those that the
    epoch shares with its neighbors, the first of which ends before position `first`, stay as they
    are.
    """
    full = tf.maximum(tf.size(order, tf.int64) - first, 0) // batch_size
    middle = order[first : first + full * batch_size]
    group = tf.range(full * batch_size) // (GROUP * batch_size)
    length = tf.gather(tf.constant(lengths, tf.int64), middle)
    middle = tf.gather(middle, tf.argsort(group * (lengths.max() + 1) + length, stable=True))
    batches = tf.reshape(middle, [full, batch_size])
    batches = tf.gather(batches, keyed_random.graph_order(key, tf.range(full)))
    return tf.concat(
        [order[:first], tf.reshape(batches, [-1]), order[first + full * batch_size :]], 0
    )
