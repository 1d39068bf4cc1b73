"""Estimated shares beside the true ones, of sets of any two sizes."""

import math
import random
import statistics

import pytest

from albert_tf.runtime.errors import InputError
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
    every = digests(5000)
    whole = sketch_of(every)
    assert len(whole) == SIZE and sketch_of(every[::-1] + every) == whole
    parts = [sketch_of(every[i : i + 700]) for i in range(0, 5000, 700)]
    random.Random(1).shuffle(parts)
    union = ()
    for part in parts:
        union = sketch.merged(union, part)
    assert union == whole
    assert sketch.from_text(sketch.to_text(whole)) == whole and sketch.to_text(()) == ""
    assert sketch.to_text((10,)) == "000000000000000a"


@pytest.mark.parametrize(
    ("size", "other", "share"),
    [(300, 8_000, 0.9), (2_000, 8_000, 0.3), (8_000, 2_000, 0.2), (8_000, 8_000, 0.02)],
)
def test_estimates_are_unbiased_with_the_stated_error(size: int, other: int, share: float):
    """100 draws: z is 0 ± 0.1 on average, and its deviation 1, within 4 and 30 %."""
    found = []
    for seed in range(100):
        every = digests(size + other, seed)
        common = round(size * share)
        part, whole = (
            sketch_of(every[:size]),
            sketch_of(every[size - common : size + other - common]),
        )
        estimate = share_in(part, whole)
        expected = min(size, SIZE, round(SIZE * size / max(size, other)))
        assert abs(estimate.compared - expected) < 6 * math.sqrt(expected)
        found.append((estimate.value - share) / math.sqrt(share * (1 - share) / estimate.compared))
    assert abs(statistics.mean(found)) < 0.4 and 0.7 < statistics.stdev(found) < 1.3


def test_the_sketch_does_not_depend_on_the_split():
    """98 % of all documents are in the training split, which has none of the smallest digests."""
    documents = [Document(f"Text number {i}.", "") for i in range(6000)]
    train = [document for document in documents if split_of(document, 0.02) == "train"]
    every, part = (sketch_of(map(digest_of, each)) for each in (documents, train))
    share = share_in(every, part)
    assert abs(share.value - len(train) / 6000) < 4 * math.sqrt(0.02 * 0.98 / share.compared)
    rest = sketch_of(digest_of(each) for each in documents if split_of(each, 0.02) != "train")
    assert share_in(rest, part).value == 0 and share_in(rest, every).value == 1


@pytest.mark.parametrize("text", ["0123", "g" * 16, "A" * 16, 7, None, ["0" * 16]])
def test_damaged_sketches_are_refused(text: object):
    with pytest.raises(InputError, match=r"a sketch of documents must be 16 hex digits for each"):
        sketch.from_text(text)
