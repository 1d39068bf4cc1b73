"""The probe learns what the features tell and nothing else; its halves have no document in common.

The records here tell their document d and their segment: every piece of A is 10 + 2d, of B 11 + 2d.
"""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.runtime import keyed_random
from data.objectives.masking import MaskingConfig
from data.objectives.next_sentence import NextSentence
from data.pipeline.batches import Records
from data.pipeline.record_stream import records_in_order
from data.records.manifest import Counts, Manifest
from data.records.schema import COMPACT_VERSION
from pretraining.evaluation.estimates import Estimate
from pretraining.evaluation.probe import (
    FIT,
    NEITHER,
    SCORE,
    HalfPartners,
    Halves,
    fit_and_score,
    probe_batches,
)

SIZE = 8  # pieces of a segment: [CLS] A [SEP] B [SEP] are 19 of 24 positions
DOCUMENTS, EACH = 40, 5
MASKING = MaskingConfig()


def write(folder: pathlib.Path, shards: list[list[int]], first: int = SIZE) -> Records:
    """Shards of records, each given by its document; A has `first` pieces and B the others."""
    folder.mkdir()
    manifest = Manifest(
        schema_version=COMPACT_VERSION,
        layout="compact",
        seq_length=24,
        vocab_size=200,
        special_ids=(0, 1, 2, 3, 4),
        tokenizer_fingerprint="t",
        corpus_fingerprint="c",
        shards=tuple(map(len, shards)),
        counts=Counts(documents=len({document for shard in shards for document in shard})),
        options="{}",
    )
    for place, shard in enumerate(shards):
        with tf.io.TFRecordWriter(manifest.shard_path(str(folder), place)) as out:
            for d in shard:
                record = {
                    "pieces": [10 + 2 * d] * first + [11 + 2 * d] * (2 * SIZE - first),
                    "word_starts": np.packbits([True] * 2 * SIZE),
                    "first_length": first,
                    "document": d,
                }
                out.write(manifest.schema.encode(record))
    manifest.write(str(folder))
    return Records.open(str(folder))


def even_records(folder: pathlib.Path, first: int = SIZE) -> Records:
    """Two shards, and in each of them records of every document."""
    return write(folder, [list(range(DOCUMENTS)) * n for n in (2, EACH - 2)], first)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return even_records(tmp_path_factory.mktemp("probe") / "records")


def middle(ids: np.ndarray, begin: int) -> np.ndarray:
    """What most pieces of a segment are: at most 3 of the 8 are masked."""
    return np.sort(ids[:, begin : begin + SIZE])[:, SIZE // 2]


def read(batches: tf.data.Dataset) -> dict[str, np.ndarray]:
    rows = list(batches.as_numpy_iterator())
    batch = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    first, second = (middle(batch["input_word_ids"], 1), middle(batch["input_word_ids"], SIZE + 2))
    return batch | {"a": (first - 10) // 2, "b": (second - 10) // 2}


def coins(count: int) -> np.ndarray:
    """The labels of records 0, 1, ...: one bit of each one's key, for SOP and NSP alike."""
    return (
        keyed_random.bits(keyed_random.stream_key(0, keyed_random.PAIR), np.arange(count)) >> 63
    ).astype(int)


def test_halves_are_equal_and_share_no_document(records: Records):
    batch = read(probe_batches(records, NextSentence(), MASKING, 32, Halves.of_pairs(records)))
    half, count = batch["probe_half"], DOCUMENTS * EACH
    assert (half[count:] == NEITHER).all() and len(half) == 224  # the last batch is filled up
    assert [(half == which).sum() for which in (FIT, SCORE)] == [count // 2, count // 2]
    fit, score = (
        {*batch["a"][half == which], *batch["b"][half == which]} for which in (FIT, SCORE)
    )
    assert not fit & score and fit | score == set(range(DOCUMENTS))
    np.testing.assert_array_equal(batch["pair_label"][:count], coins(count))
    np.testing.assert_array_equal(batch["a"] != batch["b"], batch["pair_label"] == 1)


def test_halves_are_cut_where_they_are_most_equal(tmp_path: pathlib.Path):
    sizes = {0: 50, 1: 30, 2: 15, 3: 5}
    records = write(tmp_path / "uneven", [[d for d, size in sizes.items() for _ in range(size)]])
    halves = Halves.of_pairs(records).of(tf.range(4, dtype=tf.int64)).numpy()
    draws = keyed_random.bits(keyed_random.stream_key(0, keyed_random.HALVES), np.arange(4))
    ordered = [sizes[d] for d in np.argsort(draws).tolist()]
    best = min(abs(2 * sum(ordered[:k]) - 100) for k in (1, 2, 3))
    fit = sum(size for d, size in sizes.items() if halves[d] == FIT)
    assert abs(2 * fit - 100) == best and 0 < fit < 100


def test_a_partner_in_the_other_half_keeps_the_pair_out_of_the_probe(tmp_path: pathlib.Path):
    """Two documents are one in each half: partners are of both, and none serves the probe."""
    records = write(tmp_path / "two", [[0, 1] * 10])
    raw, index, epoch = records_in_order(records.shards()).batch(20).get_single_element()
    schema = records.manifest.schema
    partners = HalfPartners(schema, 21, 0, Halves.of_pairs(records))
    chosen = partners.choose(raw, index, epoch[0], raw)
    documents = schema.parse(chosen)["document"].numpy().tolist()
    assert documents == [1, 0] * 10
    assert (partners.half_of(raw, chosen).numpy() == NEITHER).all()


def features_of(labels: np.ndarray, signal: float, seed: int = 0) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(size=(len(labels), 16))
    noise[:, 3] += signal * labels
    return noise.astype(np.float32)


LABELS = np.random.default_rng(1).integers(2, size=4000)
HALVES = np.arange(4000) % 2
DOCUMENTS_OF_PAIRS = np.arange(4000) // 4


def fitted(features: np.ndarray, labels: np.ndarray, halves: np.ndarray) -> Estimate | None:
    return fit_and_score(features, labels, halves, DOCUMENTS_OF_PAIRS)


def accuracy_of(*arrays: np.ndarray) -> tuple[float, float]:
    found = fitted(*arrays)
    assert found and found.documents == 1000
    return found.share, found.count


def test_a_feature_that_tells_the_label_is_found():
    assert accuracy_of(features_of(LABELS, 100), LABELS, HALVES) == (1.0, 2000)
    # The best that can be done with two normal distributions 2 apart: Phi(1) = 0.8413.
    accuracy, count = accuracy_of(features_of(LABELS, 2), LABELS, HALVES)
    assert accuracy == pytest.approx(0.8413, abs=4 * (0.8413 * 0.1587 / count) ** 0.5)


def test_noise_tells_nothing():
    accuracy, count = accuracy_of(features_of(LABELS, 0), LABELS, HALVES)
    assert accuracy == pytest.approx(0.5, abs=4 * (0.25 / count) ** 0.5)


def test_units_do_not_matter():
    features = features_of(LABELS, 2).astype(np.float64)
    scaled = features * 10.0 ** np.arange(-8, 8) + 5
    assert accuracy_of(scaled, LABELS, HALVES) == pytest.approx(
        accuracy_of(features, LABELS, HALVES)
    )


def test_the_scored_half_is_not_fitted():
    upside_down = np.where(HALVES == SCORE, 1 - LABELS, LABELS)
    assert accuracy_of(features_of(LABELS, 100), upside_down, HALVES) == (0.0, 2000)
    halves = np.where(np.arange(4000) < 1000, NEITHER, HALVES)
    wrong = np.where(halves == NEITHER, 1 - LABELS, LABELS)
    found = fitted(features_of(LABELS, 100), wrong, halves)
    assert found == Estimate(1.0, 0.0, 1500, 750)


def test_nothing_to_fit_or_to_score():
    features = features_of(LABELS, 100)
    assert fitted(features, LABELS, np.full(4000, FIT)) is None
    assert fitted(features, LABELS, np.full(4000, SCORE)) is None
    assert fitted(features, np.zeros(4000, int), HALVES) is None
    features[7, 3] = np.nan
    assert fitted(features, LABELS, HALVES) is None
