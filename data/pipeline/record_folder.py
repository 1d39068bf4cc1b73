"""A folder of records: its manifest, its shards, and the stream of its records."""

import contextlib
import dataclasses
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from albert_tf.runtime.errors import InputError
from data.pipeline.example_maker import max_pieces
from data.pipeline.pair_objective import Objective, Partners
from data.pipeline.record_stream import (
    DAMAGE,
    find_damage,
    record_numbers,
    record_stream,
    records_in_order,
)
from data.records.manifest import COMPACT, Manifest


@dataclasses.dataclass(frozen=True)
class Records:
    """A folder of records with its manifest.

    skip_corrupt: where a shard is torn or bit-flipped, its records that can be read take the places
    of those that cannot; else reading it is an error.
    """

    folder: str
    manifest: Manifest
    skip_corrupt: bool = False

    @classmethod
    def open(cls, folder: str, skip_corrupt: bool = False) -> "Records":
        """Opens a complete folder; errors as `Manifest.read`."""
        return cls(folder, Manifest.read(folder), skip_corrupt)

    def shards(self) -> list[tuple[str, int]]:
        """(file, number of records) of each shard that has any, in the order of the manifest."""
        sizes = enumerate(self.manifest.shards)
        return [(self.manifest.shard_path(self.folder, i), size) for i, size in sizes if size]

    def stream(self, objective: Objective, seed: int, start: int) -> tf.data.Dataset:
        """`record_stream` from record number `start` on; with partners for NSP."""
        partners = self._partners(objective, seed)
        return record_stream(self.shards(), seed, start, partners, self.skip_corrupt)

    def in_order(self, objective: Objective, seed: int) -> tf.data.Dataset:
        """Every record once, in the order of the files."""
        return records_in_order(self.shards(), self._partners(objective, seed))

    def numbers(self, seed: int, start: int, count: int) -> list[tuple[str, int, int]]:
        """(folder, epoch, index) of `count` records of the stream from number `start` on."""
        sizes = np.array([size for _, size in self.shards()])
        return [(self.folder, *number) for number in record_numbers(sizes, seed, start, count)]

    @contextlib.contextmanager
    def naming_damage(self) -> Iterator[None]:
        """InputError, with file and record, for a torn or bit-flipped file read in the block."""
        try:
            yield
        except DAMAGE:
            self.check_files()
            raise

    def check_files(self) -> None:
        """Reads every record.

        Raises:
          InputError: a file is torn or bit-flipped.
        """
        if damage := find_damage(self.shards()):
            raise InputError(
                f"{damage}: copy it again, or remove {self.folder!r} and build it again; "
                "pretraining.train does without what cannot be read with --skip_corrupt."
            )

    def _partners(self, objective: Objective, seed: int) -> Partners | None:
        manifest = self.manifest
        if objective.pair != "nsp" or manifest.layout != COMPACT:
            return None
        return Partners(manifest.schema, max_pieces(manifest.seq_length), seed)
