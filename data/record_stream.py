"""The endless stream of records: epoch after epoch, each in its own keyed order.

In each epoch the shards come in a keyed order, and so do the records of a shard. One shard is in
memory at a time, as the strings of its records.
"""

import numpy as np
import tensorflow as tf

from data import keyed


def record_stream(shards: list[tuple[str, int]], seed: int, start: int) -> tf.data.Dataset:
    """Endless (raw string, record index int64, epoch int64) from record number `start` on.

    shards: (file, number of records), none of them empty.
    """
    sizes = np.array([size for _, size in shards])
    paths = tf.constant([path for path, _ in shards])
    firsts = tf.constant(np.cumsum(sizes) - sizes)  # index of each shard's first record
    turn, skip = seek(sizes, seed, start)

    def shard_of_turn(turn: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        epoch = turn // len(sizes)
        key = keyed.graph_stream_key(seed, keyed.SHARD_ORDER, epoch)
        draws = keyed.graph_bits(key, tf.range(len(sizes), dtype=tf.int64))
        return _argsort(draws)[turn % len(sizes)], epoch

    @tf.autograph.experimental.do_not_convert  # graph operations only: converting takes seconds
    def read_shard(turn: tf.Tensor) -> tf.data.Dataset:
        shard, epoch = shard_of_turn(turn)
        size = tf.gather(tf.constant(sizes), shard)
        # A whole shard at once: its records can then be taken in the epoch's own order.
        raw = tf.data.TFRecordDataset(paths[shard]).batch(size).get_single_element()
        index = tf.gather(firsts, shard) + tf.range(size)
        draws = keyed.graph_bits(keyed.graph_stream_key(seed, keyed.RECORD_ORDER, epoch), index)
        order = _argsort(draws)
        epochs = tf.fill([size], epoch)
        return tf.data.Dataset.from_tensor_slices(
            (tf.gather(raw, order), tf.gather(index, order), epochs)
        )

    turns = tf.data.Dataset.range(turn, tf.int64.max)
    return turns.flat_map(read_shard).skip(skip)


def seek(sizes: np.ndarray, seed: int, start: int) -> tuple[int, int]:
    """(number of the shard's turn in the stream, records to skip in it) of record `start`."""
    epoch, skip = divmod(start, int(sizes.sum()))
    key = keyed.stream_key(seed, keyed.SHARD_ORDER, epoch)
    order = np.argsort(keyed.bits(key, np.arange(len(sizes))) >> np.uint64(1), kind="stable")
    for place, shard in enumerate(order):
        if skip < sizes[shard]:
            return epoch * len(sizes) + place, skip
        skip -= int(sizes[shard])
    raise AssertionError("an epoch is shorter than its remainder")


def _argsort(draws: tf.Tensor) -> tf.Tensor:
    """Indices that sort uint64 draws (by their high 63 bits, which int64 can hold)."""
    high = tf.cast(tf.bitwise.right_shift(draws, tf.constant(1, tf.uint64)), tf.int64)
    return tf.argsort(high, stable=True)
