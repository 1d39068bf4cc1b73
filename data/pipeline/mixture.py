"""Several folders of records as one stream, each with its share (the paper's additional data)."""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from albert_tf.runtime import keyed_random
from albert_tf.runtime.errors import InputError
from data.pipeline.pair_objective import Objective
from data.pipeline.record_folder import Records
from data.records.manifest import COMPACT, Manifest

BLOCK = 1000  # records of the stream in which every folder has its exact share
_WEIGHTED = re.compile(r"(.+):(\d+(?:\.\d*)?|\.\d+)")


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Folders of records made by one tokenizer, for one length and layout.

    Every BLOCK records of the stream hold so many of each folder as its weight says, in a keyed
    order; a folder's own records come in the order of its own stream. So position p of the mixture
    is a known position of one folder, and a restart seeks.

    weights: of the parts, positive; only their ratios count.
    """

    parts: tuple[Records, ...]
    weights: tuple[float, ...]

    @classmethod
    def open(cls, text: str, skip_corrupt: bool = False) -> "Mixture":
        """Opens `DIR`, or `DIR:weight,DIR:weight`.

        Raises:
          InputError: a folder's records do not go with the first one's, or a weight is too small.
        """
        if "," not in text and not _WEIGHTED.fullmatch(text):
            return cls((Records.open(text, skip_corrupt),), (1.0,))
        folders, weights = [], []
        for part in text.split(","):
            found = _WEIGHTED.fullmatch(part)
            if found is None or not float(found[2]):
                raise InputError(
                    "--data must be a folder, or DIR:weight,DIR:weight with positive weights. "
                    f"Received: {part!r}."
                )
            folders.append(found[1])
            weights.append(float(found[2]))
        parts = tuple(Records.open(folder, skip_corrupt) for folder in folders)
        mixture = cls(parts, tuple(weights))
        mixture._check()
        return mixture

    @property
    def manifest(self) -> Manifest:
        """That of the first folder: tokenizer, length, layout and schema are those of all."""
        return self.parts[0].manifest

    @property
    def num_records(self) -> int:
        """Of all folders together."""
        return sum(part.manifest.num_records for part in self.parts)

    def stream(self, objective: Objective, seed: int, start: int) -> tf.data.Dataset:
        """As `Records.stream`, of all folders, whose records are numbered through.

        So no two have the same index, by which their masks and pairs are drawn.
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
        """(folder, epoch, index in it) of `count` records of the stream from number `start` on."""
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
    def naming_damage(self) -> Iterator[None]:
        """As `Records.naming_damage`, of all folders."""
        with contextlib.ExitStack() as stack:
            for part in self.parts:
                stack.enter_context(part.naming_damage())
            yield

    @functools.cached_property
    def _pattern(self) -> np.ndarray:
        """int64 [BLOCK]: the parts of a block's records, not yet shuffled; largest remainders."""
        shares = BLOCK * np.array(self.weights) / sum(self.weights)
        counts: np.ndarray = np.floor(shares).astype(np.int64)
        counts[np.argsort(counts - shares, kind="stable")[: BLOCK - counts.sum()]] += 1
        return np.repeat(np.arange(len(counts)), counts)

    def _block(self, seed: int, block: int) -> np.ndarray:
        """int64 [BLOCK]: whose record each of the block's is."""
        key = keyed_random.stream_key(seed, keyed_random.MIXTURE, block)
        draws = keyed_random.bits(key, np.arange(BLOCK)) >> np.uint64(1)
        return self._pattern[np.argsort(draws, kind="stable")]

    def _positions_in_parts(self, seed: int, position: int) -> list[int]:
        """How many records of each part come before `position`."""
        blocks, rest = divmod(position, BLOCK)
        per_block = np.bincount(self._pattern, minlength=len(self.parts))
        in_last_block = np.bincount(self._block(seed, blocks)[:rest], minlength=len(self.parts))
        return (blocks * per_block + in_last_block).tolist()

    def _check(self) -> None:
        missing = set(range(len(self.parts))) - set(self._pattern.tolist())
        if self.manifest.layout != COMPACT:
            raise InputError(
                "--data: only records of the compact layout can be mixed. Received: "
                f"{self.parts[0].folder!r} of the {self.manifest.layout} layout."
            )
        if missing:
            raise InputError(
                f"--data: a weight must be at least 1/{BLOCK} of all. Received: {self.weights}."
            )
        for part in self.parts[1:]:
            for key in ("layout", "tokenizer_fingerprint", "seq_length"):
                first, other = getattr(self.manifest, key), getattr(part.manifest, key)
                if first != other:
                    raise InputError(
                        f"--data: records that are mixed must have the same {key}. Received: "
                        f"{first} in {self.parts[0].folder!r}, {other} in {part.folder!r}."
                    )


def _numbered_from(begin: int) -> Callable[..., tuple[tf.Tensor, ...]]:
    return lambda raw, index, *rest: (raw, begin + index, *rest)
