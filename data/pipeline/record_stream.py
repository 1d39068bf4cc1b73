"""The endless stream of records: epoch after epoch, each in its own keyed order.

In each epoch the shards come in a keyed order, and so do the records of a shard. One shard is in
memory at a time, as serialized records. If records have partners (`data.objectives.partners`), the
shard of the partners is in memory too.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice

import numpy as np
import tensorflow as tf

from albert_tf.runtime import keyed_random
from albert_tf.runtime.errors import MachineError
from albert_tf.training.progress import Progress
from data.objectives.partners import Partners

_BATCH = 1024  # records that are checked together
_UNREADABLE = (tf.errors.NotFoundError, tf.errors.PermissionDeniedError)
# Exceptions from reading a file that is truncated, cannot be opened, or has unexpected records or
# features.
DAMAGE = (
    *_UNREADABLE,
    tf.errors.DataLossError,
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
    UnicodeDecodeError,  # in place of a message that contains bytes of the record
)


class _Shards:
    """Files of records, each read completely, so that its records can be taken in any order."""

    def __init__(
        self, shards: list[tuple[str, int]], partners: Partners | None, skip_corrupt: bool = False
    ) -> None:
        self._skip_corrupt = skip_corrupt
        self.sizes = np.array([size for _, size in shards])
        self._paths = tf.constant([path for path, _ in shards])
        self._ends = tf.constant(np.cumsum(self.sizes))
        self._partners = partners

    def read(self, shard: tf.Tensor, epoch: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return strings [n], indices int64 [n], epochs int64 [n] and any partners' strings [n]."""
        raw = self._strings(shard)
        size = tf.size(raw, tf.int64)
        index = self._ends[shard] - size + tf.range(size)
        fields = raw, index, tf.fill([size], epoch)
        if self._partners is None:
            return fields
        candidates = self._strings(self._partners.shard(shard, epoch, self._ends))
        return *fields, self._partners.choose(raw, index, epoch, candidates)

    def _strings(self, shard: tf.Tensor) -> tf.Tensor:
        size = tf.gather(tf.constant(self.sizes), shard)
        dataset = tf.data.TFRecordDataset(self._paths[shard])
        if self._skip_corrupt:
            return self._readable(shard, dataset, size)
        records = dataset.batch(size + 1).get_single_element()
        complete = tf.debugging.assert_equal(tf.size(records, tf.int64), size, "records in a shard")
        with tf.control_dependencies([complete]):
            return tf.identity(records)

    def _readable(self, shard: tf.Tensor, dataset: tf.data.Dataset, size: tf.Tensor) -> tf.Tensor:
        """Return `size` strings: the readable records of a damaged shard, repeated."""
        # An empty string comes first, so that there is an element even if nothing can be read.
        empty = tf.data.Dataset.from_tensors("")
        records = (
            empty.concatenate(dataset.ignore_errors()).batch(size + 1).get_single_element()[1:]
        )
        count = tf.size(records, tf.int64)
        complete = tf.debugging.assert_positive(count, "no record of a shard can be read")
        message = (
            "\n",
            self._paths[shard],
            "is damaged:",
            size - count,
            "of",
            size,
            "records cannot be read and are replaced by others",
        )
        warned = tf.cond(
            count < size, lambda: tf.print(*message, output_stream=sys.stderr), tf.no_op
        )
        with tf.control_dependencies([complete, warned]):
            return tf.gather(records, tf.range(size) % tf.maximum(count, 1))


def record_stream(
    shards: list[tuple[str, int]],
    seed: int,
    start: int,
    partners: Partners | None = None,
    skip_corrupt: bool = False,
) -> tf.data.Dataset:
    """Return an endless dataset of (raw string, index int64, epoch int64) from record `start` on.

    With `partners`, there is a fourth field, the raw string of the record's partner. `shards` are
    (file, number of records), none of them empty. `skip_corrupt` is as in `Records`.
    """
    source = _Shards(shards, partners, skip_corrupt)
    position, skip = seek(source.sizes, seed, start)

    def shard_at(position: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        epoch = position // len(shards)
        key = keyed_random.graph_stream_key(seed, keyed_random.SHARD_ORDER, epoch)
        order = keyed_random.graph_order(key, tf.range(len(shards), dtype=tf.int64))
        return tf.cast(order[position % len(shards)], tf.int64), epoch

    @tf.autograph.experimental.do_not_convert  # only graph operations; conversion takes seconds
    def read_shard(position: tf.Tensor) -> tf.data.Dataset:
        shard, epoch = shard_at(position)
        fields = source.read(shard, epoch)
        key = keyed_random.graph_stream_key(seed, keyed_random.RECORD_ORDER, epoch)
        order = keyed_random.graph_order(key, fields[1])
        return tf.data.Dataset.from_tensor_slices(tuple(tf.gather(f, order) for f in fields))

    positions = tf.data.Dataset.range(position, tf.int64.max)
    return positions.flat_map(read_shard).skip(skip)


def records_in_order(
    shards: list[tuple[str, int]], partners: Partners | None = None
) -> tf.data.Dataset:
    """Return every record once, in file order, with the fields of `record_stream` and epoch 0."""
    if partners is None:  # no need for whole shards in memory
        records = tf.data.TFRecordDataset([path for path, _ in shards])
        total = sum(size for _, size in shards)
        records = records.apply(tf.data.experimental.assert_cardinality(total)).enumerate()
        return records.map(lambda index, raw: (raw, index, tf.zeros([], tf.int64)))
    source = _Shards(shards, partners)

    @tf.autograph.experimental.do_not_convert
    def read_shard(shard: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(source.read(shard, tf.zeros([], tf.int64)))

    return tf.data.Dataset.range(len(shards)).flat_map(read_shard)


def find_damage(shards: list[tuple[str, int]]) -> str:
    """Return a message about the first damaged record, or an empty string if there is none.

    Raises:
      MachineError: a file is missing, or reading it is not permitted.
    """
    with Progress("records", sum(size for _, size in shards)) as progress:
        for path, size in shards:
            records = tf.data.TFRecordDataset(path).as_numpy_iterator()
            for number in count():
                try:
                    if next(records, None) is None:
                        break
                except _UNREADABLE as error:
                    raise MachineError(f"{path!r} cannot be read: {error.message}.") from None
                except tf.errors.DataLossError:
                    return f"{path!r} is damaged at record {number} of {size} (from 0)"
            if number != size:
                return f"{path!r} must have {size} records. Received: {number}"
            progress.advance(size, path)
    return ""


def find_misfit(
    shards: Sequence[tuple[str, int]], parse: Callable[[tf.Tensor], object]
) -> tuple[str, int] | None:
    """Return the file and the number, from 0, of the first record that `parse` fails on."""
    for path, _ in shards:
        for batch, raw in enumerate(tf.data.TFRecordDataset(path).batch(_BATCH)):
            if not _is_parsed(parse, raw):
                fits = (_is_parsed(parse, raw[row : row + 1]) for row in range(len(raw)))
                return path, batch * _BATCH + list(fits).index(False)
    return None


def _is_parsed(parse: Callable[[tf.Tensor], object], raw: tf.Tensor) -> bool:
    try:
        parse(raw)
    except DAMAGE:
        return False
    return True


def record_numbers(
    sizes: np.ndarray, seed: int, start: int, num_records: int
) -> list[tuple[int, int]]:
    """Return (epoch, index) of `num_records` records of `record_stream` from `start` on.

    `sizes` is int64 [shards], with no 0.
    """
    position, skip = seek(sizes, seed, start)
    return list(islice(_numbers(sizes, seed, position), skip, skip + num_records))


def _numbers(sizes: np.ndarray, seed: int, position: int) -> Iterator[tuple[int, int]]:
    ends = np.cumsum(sizes)
    for epoch, position_in_epoch in (divmod(t, len(sizes)) for t in count(position)):
        shard = _shard_order(sizes, seed, epoch)[position_in_epoch]
        index = np.arange(ends[shard] - sizes[shard], ends[shard])
        key = keyed_random.stream_key(seed, keyed_random.RECORD_ORDER, epoch)
        yield from ((epoch, number) for number in index[keyed_random.order(key, index)].tolist())


def _shard_order(sizes: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    key = keyed_random.stream_key(seed, keyed_random.SHARD_ORDER, epoch)
    return keyed_random.order(key, np.arange(len(sizes)))


def seek(sizes: np.ndarray, seed: int, start: int) -> tuple[int, int]:
    """Return the position of the shard of record `start`, and the records to skip in it."""
    epoch, skip = divmod(start, int(sizes.sum()))
    for position, shard in enumerate(_shard_order(sizes, seed, epoch)):
        if skip < sizes[shard]:
            return epoch * len(sizes) + position, skip
        skip -= int(sizes[shard])
    raise AssertionError("an epoch is shorter than its remainder")
