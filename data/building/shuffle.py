"""A global shuffle in bounded memory.

Each pair has a random key. Pass one spills the pair to the shard of its key; pass two sorts one
shard at a time by key. All orders of the records are equally likely. Each shard is an open file in
pass one.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, Self

import numpy as np

from albert_tf.runtime.files import outputs
from data.building.sequences import Sequences
from data.records.manifest import shard_name
from data.records.writer import write_records

SORTED_BYTES = 2**26  # of a spill file that are sorted together
BATCH_PIECES = 2**21  # pieces that are encoded together, padding included


class Layout(Protocol):
    """Encoder of pairs."""

    def encode(self, sequences: Sequences) -> Iterable[bytes]:
        """Return the serialized records, in order."""
        ...


def by_shard(sequences: Sequences, num_shards: int) -> Iterator[Sequences]:
    """Return the pairs of each shard, as given by their keys, in the order of the shards."""
    shards = (sequences.keys % np.uint64(num_shards)).astype(np.int64)
    if num_shards > 1:
        sequences = sequences.take(np.argsort(shards, kind="stable"))
    return sequences.split(np.bincount(shards, minlength=num_shards).tolist())


class Spill:
    """Temporary files of pairs, one per shard.

    Args:
      folder: the folder of the files.
      sizes: number of bytes to keep of each existing file; the rest is truncated.
      records: number of pairs in these bytes.
    """

    def __init__(self, folder: str, sizes: Sequence[int], records: Sequence[int]) -> None:
        self.records = np.array(records, np.int64)
        self._files = []
        for shard, size in enumerate(sizes):
            file = open(spill_path(folder, shard), "r+b" if size else "wb")
            file.truncate(size)
            file.seek(size)
            self._files.append(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()

    def add(self, sequences: Sequences) -> None:
        """Append each pair to the file of its shard."""
        for shard, pairs in enumerate(by_shard(sequences, len(self._files))):
            if len(pairs):
                pairs.write(self._files[shard])
                self.records[shard] += len(pairs)

    def sync(self) -> list[int]:
        """Flush all files to the disk and return their sizes."""
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
        return [file.tell() for file in self._files]


@dataclasses.dataclass(frozen=True)
class ShardWriter:
    """Function that turns a spill file into a sorted TFRecord shard, in any process.

    A file of more than `sorted_bytes` is sorted in several ranges of keys, one after the other.
    """

    folder: str
    num_shards: int
    layout: Layout
    sorted_bytes: int = SORTED_BYTES

    def __call__(self, shard: int) -> int:
        """Write the shard, which gets its name when it is complete, and return its number."""
        path = os.path.join(self.folder, shard_name(shard, self.num_shards))
        with outputs.new_file(path) as partial:
            write_records(partial, self._records(spill_path(self.folder, shard)))
        return shard

    def _records(self, spill: str) -> Iterator[bytes]:
        num_ranges = -(-os.path.getsize(spill) // self.sorted_bytes)
        for number in range(num_ranges):
            yield from self._encoded(_keys_in_range(spill, number, num_ranges))

    def _encoded(self, sequences: Sequences) -> Iterator[bytes]:
        order = np.argsort(sequences.keys, kind="stable")
        rows = max(1, BATCH_PIECES // max(1, int(sequences.lengths.max(initial=1))))
        for begin in range(0, len(order), rows):
            yield from self.layout.encode(sequences.take(order[begin : begin + rows]))


def _keys_in_range(spill: str, number: int, num_ranges: int) -> Sequences:
    """Return the pairs of a file whose keys are in one of `num_ranges` equal ranges."""
    width = np.uint64(2**64 // num_ranges + 1) if num_ranges > 1 else None
    with open(spill, "rb") as file:
        blocks = Sequences.blocks(file)
        if width is None:
            return Sequences.joined(blocks)
        return Sequences.joined(
            block.take(np.flatnonzero(block.keys // width == number)) for block in blocks
        )


def spill_path(folder: str, shard: int) -> str:
    """Return the path of the temporary file of a shard."""
    return os.path.join(folder, f"{outputs.MARK}.{shard:05d}.spill")
