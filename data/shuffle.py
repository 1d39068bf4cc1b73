"""A global shuffle in the memory of one shard: keyed shard first, keyed order in it afterwards.

Each record has a random key. Pass one spills it to the shard that the key names; pass two sorts one
shard at a time by key. Every order of the records is as likely as any other. The memory is that of
one shard: the caller bounds it by choosing their number, of which each is an open file.
"""

import os
import pickle
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

from albert_tf.progress import Progress
from data.records import shard_name
from data.schema import RecordSchema


class Keyed(NamedTuple):
    """A record with the 64-bit key that orders it; document and turn only break ties."""

    key: int
    document: int
    turn: int
    record: dict[str, Any]


class Spill:
    """Appends records to one temporary file per shard."""

    def __init__(self, folder: str, num_shards: int) -> None:
        self._files = [open(_spill_path(folder, s), "wb") for s in range(num_shards)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()

    def add(self, records: Iterable[Keyed]) -> None:
        """Adds records, each to the shard of its key."""
        by_shard: dict[int, list[Keyed]] = {}
        for record in records:
            by_shard.setdefault(record.key % len(self._files), []).append(record)
        for shard, group in by_shard.items():
            pickle.dump(group, self._files[shard], pickle.HIGHEST_PROTOCOL)


def write_shards(folder: str, schema: RecordSchema, num_shards: int) -> tuple[int, ...]:
    """Turns the spilled files of `folder` into sorted TFRecord shards; returns their sizes."""
    import tensorflow as tf

    sizes = []
    with Progress("shards", num_shards) as progress:
        for shard in range(num_shards):
            records = _read_spill(_spill_path(folder, shard))
            records.sort(key=lambda r: r[:3])
            with tf.io.TFRecordWriter(os.path.join(folder, shard_name(shard, num_shards))) as out:
                for record in records:
                    out.write(schema.encode(record.record))
            os.remove(_spill_path(folder, shard))
            sizes.append(len(records))
            progress.advance(1)
    return tuple(sizes)


def _read_spill(path: str) -> list[Keyed]:
    records: list[Keyed] = []
    with open(path, "rb") as file:
        while file.peek(1):
            records += pickle.load(file)
    return records


def _spill_path(folder: str, shard: int) -> str:
    return os.path.join(folder, f"{shard:05d}.spill")
