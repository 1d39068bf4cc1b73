"""Batches of features for `fit`, in an order that is a function of (seed, step)."""

import tensorflow as tf

from albert_tf.runtime import keyed_random
from albert_tf.tasks.features import Features


def training_batches(
    features: Features, batch_size: int, seed: int, first_step: int, steps: int, pad: bool
) -> tf.data.Dataset:
    """Return the batches of steps first_step ... steps - 1 as (inputs, targets) for `fit`.

    Each epoch contains all units in a keyed order of its own. Batches continue across the end of an
    epoch, so that a resumed run finds its position by arithmetic. With `pad`, batches are padded to
    `features.seq_length`; otherwise to what their longest unit needs.
    """
    count = len(features)
    first, end = first_step * batch_size, steps * batch_size

    def batch(units: tf.Tensor) -> tuple:
        inputs, targets = features.batch(units, features.seq_length if pad else None)
        return inputs, targets if len(targets) > 1 else next(iter(targets.values()))

    dataset = unit_stream(count, seed, first).take(end - first)
    dataset = dataset.batch(batch_size, drop_remainder=True).map(batch, tf.data.AUTOTUNE)
    options = tf.data.Options()
    # Each worker reads all units and takes its share of a batch: there are no files to divide.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.with_options(options).prefetch(4)


def unit_stream(count: int, seed: int, first: int) -> tf.data.Dataset:
    """Return unit numbers, int32, from position `first`; each epoch is range(count), shuffled."""

    def epoch_order(epoch: tf.Tensor) -> tf.data.Dataset:
        key = keyed_random.graph_stream_key(seed, keyed_random.UNIT_ORDER, epoch)
        order = keyed_random.graph_order(key, tf.range(count, dtype=tf.int64))
        return tf.data.Dataset.from_tensor_slices(order)

    epochs = tf.data.Dataset.range(first // count, tf.int64.max)
    return epochs.flat_map(epoch_order).skip(first % count)
