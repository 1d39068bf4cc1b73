"""Record folders: the manifest, the shards, and the stream of the records."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from albert_tf.runtime.errors import InputError
from data.objectives.pair_objective import PairObjective, pair_of
from data.objectives.partners import Partners
from data.objectives.registry import OBJECTIVES
from data.pipeline.example_maker import max_pieces
from data.pipeline.record_stream import (
    DAMAGE,
    find_damage,
    find_misfit,
    record_numbers,
    record_stream,
    records_in_order,
)
from data.records.manifest import COMPACT, MANIFEST, Manifest
from data.records.reference_reader import StaticRecords


@dataclasses.dataclass(frozen=True)
class Records:
    """A record folder with its manifest.

    Attributes:
      folder: path of the folder.
      manifest: manifest of the folder.
      skip_corrupt: if a shard is truncated or corrupt, replace its unreadable records with readable
        ones; otherwise reading it is an error.
    """

    folder: str
    manifest: Manifest
    skip_corrupt: bool = False

    @classmethod
    def open(cls, folder: str, skip_corrupt: bool = False) -> "Records":
        """Open a complete folder; the errors are those of `Manifest.read`."""
        return cls(folder, Manifest.read(folder), skip_corrupt)

    def shards(self) -> list[tuple[str, int]]:
        """Return (file, number of records) of each non-empty shard, in manifest order."""
        sizes = enumerate(self.manifest.shards)
        return [(self.manifest.shard_path(self.folder, i), size) for i, size in sizes if size]

    def static(self) -> StaticRecords:
        """Return the reader of records of another layout than the compact one."""
        has_pairs = OBJECTIVES[pair_of(self.manifest)].is_trained
        return StaticRecords.of_build(self.folder, self.manifest, has_pairs)

    def stream(self, objective: PairObjective, seed: int, start: int) -> tf.data.Dataset:
        """Return the `record_stream` from record `start` on, with partners if needed."""
        partners = self._partners(objective, seed)
        return record_stream(self.shards(), seed, start, partners, self.skip_corrupt)

    def in_order(self, objective: PairObjective, seed: int) -> tf.data.Dataset:
        """Return a dataset of every record once, in the order of the files."""
        return records_in_order(self.shards(), self._partners(objective, seed))

    def numbers(self, seed: int, start: int, count: int) -> list[tuple[str, int, int]]:
        """Return (folder, epoch, index) of `count` records of the stream from `start` on."""
        sizes = np.array([size for _, size in self.shards()])
        return [(self.folder, *number) for number in record_numbers(sizes, seed, start, count)]

    @contextlib.contextmanager
    def damage_as_input_error(self) -> Iterator[None]:
        """Raise an InputError with file and record if the block reads a damaged file."""
        try:
            yield
        except DAMAGE:
            self.check_files()
            self._check_features()
            raise

    def check_files(self) -> None:
        """Read every record.

        Raises:
          InputError: a file is truncated or corrupt.
        """
        if damage := find_damage(self.shards()):
            raise InputError(
                f"{damage}. Copy it again, or remove {self.folder!r} and build it again. With "
                "--skip_corrupt, pretraining.train skips unreadable records."
            )

    def _check_features(self) -> None:
        """Parse every record.

        Raises:
          InputError: a record does not have the features that the manifest describes.
        """
        parse: Callable[[tf.Tensor], object] = self.manifest.schema.parse
        if self.manifest.layout != COMPACT:
            parse = self.static().parse
        if misfit := find_misfit(self.shards(), parse):
            raise InputError(
                f"{misfit[0]!r} must hold records with the features that {MANIFEST} describes, but "
                f"record {misfit[1]} (from 0) has others. Remove {self.folder!r} and build it "
                "again."
            )

    def _partners(self, objective: PairObjective, seed: int) -> Partners | None:
        manifest = self.manifest
        if not objective.has_partners or manifest.layout != COMPACT:
            return None
        return Partners(manifest.schema, max_pieces(manifest.seq_length), seed)
