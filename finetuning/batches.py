"""Batches of features for `fit`, in an order that is a function of (seed, step)."""

import tensorflow as tf

from albert_tf.tasks.features import Features


def training_batches(
    features: Features, batch_size: int, seed: int, first_step: int, steps: int, pad: bool
) -> tf.data.Dataset:
    """The batches of steps first_step ... steps - 1: (inputs, targets), as `fit` takes them.

    Every epoch has all units in an order of its own, and batches go on across its end, so that a
    run that is taken up again seeks by arithmetic.

    Args:
      pad: to `features.seq_length`; else to what the longest unit of a batch needs.
    """
    count = len(features)
    positions = tf.data.Dataset.range(first_step * batch_size, steps * batch_size)

    def batch(position: tf.Tensor) -> tuple:
        epoch, index = position // count, position % count
        salt = tf.stack([tf.fill(tf.shape(epoch), tf.constant(seed, tf.int64)), epoch,
                         tf.zeros_like(epoch)], axis=1)  # fmt: skip
        units = tf.raw_ops.RandomIndexShuffle(
            index=tf.cast(index, tf.int32), seed=tf.cast(salt, tf.int32), max_index=count - 1,
            rounds=4,
        )  # fmt: skip
        inputs, targets = features.batch(units, features.seq_length if pad else None)
        return inputs, targets if len(targets) > 1 else next(iter(targets.values()))

    dataset = positions.batch(batch_size, drop_remainder=True).map(batch, tf.data.AUTOTUNE)
    options = tf.data.Options()
    # Each worker reads all and takes its share of a batch: the units are not in files.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.with_options(options).prefetch(4)
