"""Several record folders as one stream, each with its share (the paper's additional data)."""

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from albert_tf.runtime import keyed_random
from albert_tf.runtime.errors import InputError
from data.objectives.pair_objective import PairObjective
from data.pipeline.record_folder import Records
from data.records.manifest import COMPACT, Manifest

BLOCK = 1000  # records per block; every block has the exact share of each folder
_WEIGHTED = re.compile(r"(.+):(\d+(?:\.\d*)?|\.\d+)")


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Record folders with the same tokenizer and layout; shorter sequences are padded.

    Every BLOCK records of the stream contain each folder in proportion to its weight, in a keyed
    order. The records of a folder come in the order of its own stream. So position p of the mixture
    is a known position of one folder, and a restart seeks to it.

    Attributes:
      parts: the record folders.
      weights: the positive weights of the parts; only their ratios matter.
    """

    parts: tuple[Records, ...]
    weights: tuple[float, ...]

    @classmethod
    def open(cls, text: str, skip_corrupt: bool = False) -> "Mixture":
        """Open `DIR`, or `DIR:weight,DIR:weight`; a folder that exists is a `DIR`.

        Raises:
          InputError: `text` has another form, the records of a folder do not match those of the
            first one, or a weight is too small.
        """
        if os.path.isdir(text) or ("," not in text and not _WEIGHTED.fullmatch(text)):
            return cls((Records.open(text, skip_corrupt),), (1.0,))
        folders, weights = [], []
        for part in text.split(","):
            match = None if os.path.isdir(part) else _WEIGHTED.fullmatch(part)
            if match is None or not float(match[2]):
                raise InputError(
                    "--data must be a folder, or DIR:weight,DIR:weight with positive weights. "
                    f"Received: {part!r}."
                )
            folders.append(match[1])
            weights.append(float(match[2]))
        parts = tuple(Records.open(folder, skip_corrupt) for folder in folders)
        mixture = cls(parts, tuple(weights))
        mixture._check()
        return mixture

    @property
    def folder(self) -> str:
        """The folders, for messages."""
        return ",".join(part.folder for part in self.parts)

    @property
    def manifest(self) -> Manifest:
        """Manifest of the first folder with the longest sequences; its schema reads all records."""
        return max((part.manifest for part in self.parts), key=lambda manifest: manifest.seq_length)

    @property
    def num_records(self) -> int:
        """Number of records in all folders together."""
        return sum(part.manifest.num_records for part in self.parts)

    def stream(self, objective: PairObjective, seed: int, start: int) -> tf.data.Dataset:
        """Return the stream of all folders, with the fields of `Records.stream`.

        Records are numbered consecutively over all folders. So each has its own index, from which
        masks and pairs are drawn.
        """
        if len(self.parts) == 1:
            return self.parts[0].stream(objective, seed, start)
        begins = self._positions_in_parts(seed, start)
        sizes = [part.manifest.num_records for part in self.parts]
        streams = [
            part.stream(objective, seed, begin).map(_numbered_from(sum(sizes[:number])))
            for number, (part, begin) in enumerate(zip(self.parts, begins, strict=True))
        ]
        pattern = tf.constant(self._pattern, tf.int64)

        @tf.autograph.experimental.do_not_convert
        def choices(block: tf.Tensor) -> tf.data.Dataset:
            key = keyed_random.graph_stream_key(seed, keyed_random.MIXTURE, block)
            draws = keyed_random.graph_bits(key, tf.range(BLOCK, dtype=tf.int64))
            high = tf.cast(tf.bitwise.right_shift(draws, tf.constant(1, tf.uint64)), tf.int64)
            return tf.data.Dataset.from_tensor_slices(tf.gather(pattern, tf.argsort(high)))

        choice = tf.data.Dataset.range(start // BLOCK, tf.int64.max).flat_map(choices)
        return tf.data.Dataset.choose_from_datasets(streams, choice.skip(start % BLOCK))

    def numbers(self, seed: int, start: int, count: int) -> list[tuple[str, int, int]]:
        """Return (folder, epoch, index in the folder) of `count` records from `start` on."""
        begins = self._positions_in_parts(seed, start)
        ends = self._positions_in_parts(seed, start + count)
        numbers_of_parts = [
            iter(part.numbers(seed, begin, end - begin))
            for part, begin, end in zip(self.parts, begins, ends, strict=True)
        ]
        blocks = range(start // BLOCK, (start + count) // BLOCK + 1)
        order = np.concatenate([self._block(seed, block) for block in blocks])[start % BLOCK :]
        return [next(numbers_of_parts[part]) for part in order[:count].tolist()]

    @contextlib.contextmanager
    def damage_as_input_error(self) -> Iterator[None]:
        """Apply `Records.damage_as_input_error` to all folders."""
        with contextlib.ExitStack() as stack:
            for part in self.parts:
                stack.enter_context(part.damage_as_input_error())
            yield

    @functools.cached_property
    def _pattern(self) -> np.ndarray:
        """Part of each record of a block before shuffling, int64 [BLOCK], by largest remainders."""
        shares = BLOCK * np.array(self.weights) / sum(self.weights)
        counts: np.ndarray = np.floor(shares).astype(np.int64)
        counts[np.argsort(counts - shares, kind="stable")[: BLOCK - counts.sum()]] += 1
        return np.repeat(np.arange(len(counts)), counts)

    def _block(self, seed: int, block: int) -> np.ndarray:
        """Return the part of each record of a block, int64 [BLOCK]."""
        key = keyed_random.stream_key(seed, keyed_random.MIXTURE, block)
        draws = keyed_random.bits(key, np.arange(BLOCK)) >> np.uint64(1)
        return self._pattern[np.argsort(draws, kind="stable")]

    def _positions_in_parts(self, seed: int, position: int) -> list[int]:
        """Return the number of records of each part before `position`."""
        blocks, rest = divmod(position, BLOCK)
        per_block = np.bincount(self._pattern, minlength=len(self.parts))
        in_last_block = np.bincount(self._block(seed, blocks)[:rest], minlength=len(self.parts))
        return (blocks * per_block + in_last_block).tolist()

    def _check(self) -> None:
        missing = set(range(len(self.parts))) - set(self._pattern.tolist())
        if self.manifest.layout != COMPACT:
            raise InputError(
                "--data: only records of the compact layout can be mixed. Received: "
                f"{self.parts[0].folder!r} in the {self.manifest.layout} layout."
            )
        if missing:
            raise InputError(
                f"--data: a weight must be at least 1/{BLOCK} of their sum. "
                f"Received: {self.weights}."
            )
        for part in self.parts[1:]:
            for key in ("layout", "tokenizer_fingerprint"):
                first, other = getattr(self.manifest, key), getattr(part.manifest, key)
                if first != other:
                    raise InputError(
                        f"--data: mixed records must have the same {key}. Received: "
                        f"{first} in {self.parts[0].folder!r}, {other} in {part.folder!r}."
                    )


def _numbered_from(begin: int) -> Callable[..., tuple[tf.Tensor, ...]]:
    return lambda raw, index, *rest: (raw, begin + index, *rest)
