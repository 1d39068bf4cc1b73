"""Estimated shares beside the true ones, of sets of any two sizes."""

import math
import random
import statistics

import numpy as np
import pytest

from data.corpora.corpus import Document, digest_of, split_of
from data.records import sketch
from data.records.sketch import SIZE, Share, share_in, sketch_of


def digests(count: int, seed: int = 0) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(8) for _ in range(count)]


def test_small_sets_are_compared_exactly():
    every = digests(1000)
    part, whole = sketch_of(every[:400]), sketch_of(every[300:])
    assert len(part) == 400 and list(part) == sorted(part)
    assert share_in(part, whole) == Share(0.25, 0.0, 400)
    assert share_in(whole, part) == Share(1 / 7, 0.0, 700)
    assert share_in(part, sketch_of(every[:100] * 3)) == Share(0.25, 0.0, 400)
    assert share_in(part, sketch_of([])) == Share(0.0, 0.0, 400)
    assert share_in(sketch_of([]), whole) is None


def test_the_sketch_of_a_union():
    every = digests(20_000)
    whole = sketch_of(every)
    assert len(whole) == SIZE and sketch_of(every[::-1] + every[:9]) == whole
    parts = [sketch_of(every[i : i + 3000]) for i in range(0, 20_000, 3000)]
    random.Random(1).shuffle(parts)
    union = ()
    for part in parts:
        union = sketch.merged(union, part)
    assert union == whole
    assert sketch.from_text(sketch.to_text(whole)) == whole and sketch.to_text(()) == ""
    assert sketch.to_text((10, 256)) == "AAAAAAoAAAABAA==" and len(sketch.to_text(whole)) == 109_228


def sketch_of_hashes(hashes: np.ndarray) -> sketch.Sketch:
    return tuple(np.sort(hashes)[:SIZE].tolist())


@pytest.mark.parametrize(
    ("size", "other", "share"),
    [
        (300, 20_000, 0.5),  # held out from 20,300
        (2_000, 100_000, 0.9),
        (20_000, 60_000, 0.3),
        (60_000, 20_000, 0.2),
        (60_000, 60_000, 0.02),
    ],
)
def test_estimates_are_unbiased_with_the_stated_error(size: int, other: int, share: float):
    """60 draws: z is 0 ± 0.13 on average, and its deviation 1, within 4 and 40 %."""
    z_values, rng = [], np.random.default_rng(0)
    for _ in range(60):
        every = rng.integers(2**40, size=size + other)
        common = round(size * share)
        part = sketch_of_hashes(every[:size])
        whole = sketch_of_hashes(every[size - common : size + other - common])
        estimate = share_in(part, whole)
        expected = min(size, round(SIZE * size / max(size, other)))
        assert abs(estimate.compared - expected) < 6 * math.sqrt(expected)
        assert 0 < estimate.error < 0.03
        z_values.append((estimate.value - share) / estimate.error)
    assert abs(statistics.mean(z_values)) < 0.52 and 0.6 < statistics.stdev(z_values) < 1.4


def test_the_sketch_does_not_depend_on_the_split():
    """98 % of all documents are in the training split, which has none of the smallest digests."""
    documents = [Document(f"Text number {i}.", "") for i in range(20_000)]
    train = [document for document in documents if split_of(document, 0.02) == "train"]
    every, part = (sketch_of(map(digest_of, each)) for each in (documents, train))
    share = share_in(every, part)
    assert abs(share.value - len(train) / 20_000) < 4 * math.sqrt(0.02 * 0.98 / share.compared)
    rest = sketch_of(digest_of(each) for each in documents if split_of(each, 0.02) != "train")
    assert share_in(rest, part).value == 0 and share_in(rest, every).value == 1


@pytest.mark.parametrize(
    "text",
    ["AAAAAAoAAAAA", "g!" * 8, 7, None, ["AAAAAAo="], "AAAABQAAAAAE", "0123456789abcdef" * 1024],
)
def test_anything_else_is_an_empty_sketch(text: object):
    assert sketch.from_text(text) == ()
