"""Tests of the shuffle's second pass."""

import io

import numpy as np
import pytest

from data.building.sequences import Sequences
from data.building.shuffle import ShardWriter, Spill, spill_path


class Keys:
    """A layout whose records are the pairs' keys and pieces."""

    def encode(self, sequences):
        for pair in sequences.split([1] * len(sequences)):
            yield pair.keys.tobytes() + pair.pieces.tobytes()


def pairs(count, seed):
    rng = np.random.default_rng(seed)
    first, second = rng.integers(1, 5, (2, count)).astype(np.int32)
    keys = rng.integers(0, 2**64, count, np.uint64, endpoint=False)
    keys[:2], keys[2:4] = 0, 2**64 - 1  # the least and the greatest, each twice
    pieces = rng.integers(0, 9, int((first + second).sum())).astype(np.uint16)
    return Sequences(keys, np.arange(count), np.zeros(count, np.uint8), first, second, pieces)


@pytest.mark.parametrize("sorted_bytes", [100, 2000, 2**26])
def test_a_large_shard_is_sorted_in_ranges_of_keys(tmp_path, sorted_bytes):
    blocks = [pairs(50, seed) for seed in range(3)]
    with Spill(str(tmp_path), [0], [0]) as spill:
        for block in blocks:
            spill.add(block)
    writer = ShardWriter(str(tmp_path), 1, Keys(), sorted_bytes)
    found = list(writer._records(spill_path(str(tmp_path), 0)))
    order = np.argsort(np.concatenate([b.keys for b in blocks]), kind="stable")
    assert found == list(Keys().encode(Sequences.joined(blocks).take(order)))
    assert len(found) == 150


def test_written_blocks_are_read_back():
    file = io.BytesIO()
    blocks = [pairs(5, 1), pairs(7, 2)]
    for block in blocks:
        block.write(file)
    assert [len(block) for block in Sequences.blocks(io.BytesIO(file.getvalue()))] == [5, 7]
    read, joined = Sequences.read(file.getvalue()), Sequences.joined(blocks)
    assert np.array_equal(read.keys, joined.keys) and np.array_equal(read.pieces, joined.pieces)
    assert len(Sequences.read(b"")) == 0
