"""Proves that NSP's partners are of other documents, from everywhere, balanced and of true length.

The records here tell their number: all pieces of segment A are 10 + number, of B 500 + number.
"""

import dataclasses
import random

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.errors import ConfigError
from data.input_pipeline import Objective, Records, evaluation_batches, training_batches
from data.masking import MaskingConfig
from data.pairs import replace_half
from data.records import Counts, Manifest
from data.schema import COMPACT_VERSION

NSP, MASKING = Objective("nsp"), MaskingConfig()


def write(folder, shards: list[list[tuple[int, int, int]]], seq_length: int = 32) -> Records:
    """Shards of (document, length of A, length of B); numbered through."""
    folder.mkdir()
    manifest = Manifest(
        schema_version=COMPACT_VERSION,
        layout="compact",
        seq_length=seq_length,
        vocab_size=1000,
        special_ids=(0, 1, 2, 3, 4),
        tokenizer_fingerprint="t",
        corpus_fingerprint="c",
        shards=tuple(map(len, shards)),
        counts=Counts(documents=len({record[0] for shard in shards for record in shard})),
        options="{}",
    )
    number = 0
    for place, shard in enumerate(shards):
        with tf.io.TFRecordWriter(manifest.shard_path(str(folder), place)) as out:
            for document, first, second in shard:
                record = {
                    "pieces": [10 + number] * first + [500 + number] * second,
                    "word_starts": np.packbits([True] * (first + second)),
                    "first_length": first,
                    "document": document,
                }
                out.write(manifest.schema.encode(record))
                number += 1
    manifest.write(str(folder))
    return Records.open(str(folder))


def read(batches: tf.data.Dataset, count: int = -1) -> dict[str, np.ndarray]:
    """The batches as one, with `a` and `b`, the numbers of the records that the segments are of.

    Also `a_length` and `b_length`; `b` is -1 where there is no segment B.
    """
    rows = list(batches.take(count).as_numpy_iterator())
    batch = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    ids = batch["input_word_ids"].copy()
    row, slot = np.nonzero(batch["masked_lm_weights"])
    ids[row, batch["masked_lm_positions"][row, slot]] = batch["masked_lm_ids"][row, slot]
    is_b = (batch["input_type_ids"] == 1) & (ids != 3)
    batch["a_length"] = batch["input_mask"].sum(1) - batch["input_type_ids"].sum(1) - 2
    batch["b_length"], batch["a"] = is_b.sum(1), ids[:, 1] - 10
    batch["b"] = np.where(is_b, ids, 0).max(axis=1) - 500
    assert (ids[is_b] == np.repeat(batch["b"] + 500, batch["b_length"])).all()
    return batch


@pytest.fixture(scope="module")
def sharded(tmp_path_factory) -> Records:
    """40 records of 10 documents in shards of 7, 20, 1 and 12; number 3 has no segment B."""
    rng = random.Random(0)
    lengths = [(number % 10, rng.randint(1, 14), 6) for number in range(40)]
    lengths[3] = (3, 5, 0)
    shards = [lengths[:7], lengths[7:27], lengths[27:28], lengths[28:]]
    return write(tmp_path_factory.mktemp("pairs") / "sharded", shards)


def test_partners_are_segments_b_of_other_documents_from_everywhere(sharded):
    """In 400 epochs of the 39 records with a pair; tolerances of three and four standard errors."""
    batch = read(training_batches(sharded, NSP, MASKING, 40, seed=0), 400)
    label = batch["pair_label"] == 1
    assert (batch["b"][~label & (batch["a"] != 3)] == batch["a"][~label & (batch["a"] != 3)]).all()
    assert (batch["b"][label] % 10 != batch["a"][label] % 10).all()
    # The shard of one record has no partner for its own document, in epochs that draw it.
    assert set(batch["a"][batch["pair_weight"] == 0].tolist()) == {3, 7, 17, 27, 37}
    weighted = batch["pair_weight"] == 1
    assert not (label & ~weighted).any()
    assert weighted.sum() > 0.97 * 39 * 400
    assert abs(label[weighted].mean() - 0.5) < 3 * 0.5 / weighted.sum() ** 0.5
    for number in (0, 12, 27, 39):  # in shards of 7, 20, 1 and 12
        partners = batch["b"][label & (batch["a"] == number)]
        possible = {n for n in range(40) if n != 3 and n % 10 != number % 10}
        assert set(partners) <= possible and len(set(partners)) >= len(possible) - 2
        # A shard's share is its share of the records.
        share = np.mean((partners >= 7) & (partners < 27))
        assert abs(share - 20 / 40) < 4 * 0.5 / len(partners) ** 0.5 + 0.03


def test_a_partner_is_cut_to_fit_and_never_longer_than_it_is(tmp_path):
    records = write(tmp_path / "r", [[(0, 20, 4), (1, 2, 25), (2, 10, 10)]])
    lengths = {0: (20, 4), 1: (2, 25), 2: (10, 10)}
    batch = read(training_batches(records, NSP, MASKING, 3, seed=0), 60)
    assert set(zip(batch["a"].tolist(), batch["b"].tolist(), strict=True)) == {
        (a, b) for a in range(3) for b in range(3)
    }
    for a, b, a_length, b_length in zip(
        *(batch[name].tolist() for name in ("a", "b", "a_length", "b_length")), strict=True
    ):
        assert a_length == lengths[a][0]
        assert b_length == min(lengths[b][1], 32 - 3 - a_length)


def test_replace_half_by_hand():
    high, low = 2**63, 2**63 - 1  # the coin is the highest bit
    first, second = tf.constant([3, 3, 3, 3]), tf.constant([4, 4, 4, 0])
    key = tf.constant([high, low, high, high], tf.uint64)
    found = replace_half(first, second, key, tf.constant([40] * 4), tf.constant([9, 9, 0, 9]), 10)
    rows = [getattr(found, field.name).numpy().tolist() for field in dataclasses.fields(found)]
    assert rows == [
        [0, 0, 0, 0],
        [3, 3, 3, 3],
        [40, 3, 3, 3],
        [7, 4, 4, 0],
        [True, False, False, False],
        [True, True, False, False],
    ]


def test_one_document_that_holds_nearly_all_still_has_partners(tmp_path):
    records = write(tmp_path / "r", [[(0, 5, 1 + n % 20) for n in range(60)] + [(1, 5, 7)]])
    batch = read(training_batches(records, NSP, MASKING, 61, seed=0), 40)
    assert batch["pair_weight"].all()
    label = batch["pair_label"] == 1
    assert abs(label.mean() - 0.5) < 3 * 0.5 / len(label) ** 0.5
    assert (batch["b"][label & (batch["a"] != 60)] == 60).all()
    assert len(set(batch["b"][label & (batch["a"] == 60)].tolist())) >= 5


def test_a_single_document_is_refused(tmp_path):
    records = write(tmp_path / "r", [[(0, 3, 3), (0, 3, 3)]])
    for make in (training_batches, evaluation_batches):
        with pytest.raises(ConfigError, match="objective.pair=nsp.*at least two documents.* of 1"):
            make(records, NSP, MASKING, 2, 0)


@pytest.mark.parametrize(("batch_size", "start"), [(25, 3)])
def test_a_seek_is_the_uninterrupted_stream(sharded, batch_size, start):
    whole = read(training_batches(sharded, NSP, MASKING, batch_size, seed=3), 14)
    batches = training_batches(sharded, NSP, MASKING, batch_size, seed=3, start_step=start)
    for name, value in read(batches, 14 - start).items():
        np.testing.assert_array_equal(value, whole[name][start * batch_size :], name)


@pytest.mark.slow
def test_workers_together_read_what_one_reads(sharded):
    whole = read(training_batches(sharded, NSP, MASKING, 8, seed=1), 1)
    parts = [
        read(training_batches(sharded, NSP, MASKING, 8, 1, 0, 2, worker), 1) for worker in (0, 1)
    ]
    for name, value in whole.items():
        np.testing.assert_array_equal(value, np.concatenate([p[name] for p in parts]), name)


def test_evaluation_sees_every_record_once_with_the_same_partner_each_time(sharded):
    batch = read(evaluation_batches(sharded, NSP, MASKING, 20))
    assert batch["a"].tolist() == list(range(40))
    label = batch["pair_label"] == 1
    assert 10 <= label.sum() <= 30
    assert (batch["b"][label] % 10 != np.arange(40)[label] % 10).all()
    again = read(evaluation_batches(sharded, NSP, MASKING, 40))
    assert (again["b"] == batch["b"]).all()


@pytest.mark.slow
def test_lengths_are_those_of_model_gardens_random_next_sentences(tmp_path):
    """Its true pairs are our records; our random pairs are then as long as its random pairs.

    600 sequences of 64 with sentences of 4 to 20 pieces. Means within 4 %, which is about three
    standard errors; the shares of full sequences within 0.08.
    """
    official = pytest.importorskip("official.nlp.data.create_pretraining_data")
    rng = random.Random(0)
    documents = [
        [["x"] * rng.randint(4, 20) for _ in range(rng.randint(20, 60))] for _ in range(160)
    ]
    theirs: dict[bool, list[tuple[int, int, int]]] = {False: [], True: []}
    for number in range(len(documents)):
        for instance in official.create_instances_from_document(
            documents, number, 64, 0.1, 0.15, 1, ["x"], rng
        ):
            second = sum(instance.segment_ids) - 1
            first = len(instance.tokens) - second - 3
            theirs[instance.is_random_next].append((number, first, second))
    records = write(tmp_path / "r", [theirs[False]], 64)
    batch = read(training_batches(records, NSP, MASKING, 400, seed=0), 5)
    ours = {
        label: np.stack([batch["a_length"], batch["b_length"]], axis=1)[
            batch["pair_label"] == label
        ]
        for label in (0, 1)
    }
    random_pairs = np.array(theirs[True])[:, 1:]
    for mine, other in ((ours[1], random_pairs), (ours[1], ours[0])):
        assert mine.mean(axis=0).sum() == pytest.approx(other.mean(axis=0).sum(), rel=0.04)
        assert np.mean(mine.sum(1) == 61) == pytest.approx(np.mean(other.sum(1) == 61), abs=0.08)
    assert ours[1].mean(axis=0) == pytest.approx(ours[0].mean(axis=0), rel=0.04)
