"""Tests that NSP's partners are of other documents, from everywhere, balanced and of true length.

The records here tell their number: all pieces of segment A are 10 + number, of B 500 + number.
"""

import dataclasses
import itertools
import random

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.runtime.errors import ConfigError
from albert_tf.text.truncation import truncated_lengths
from data.building.segments import segment_pairs
from data.objectives.masking import MaskingConfig
from data.objectives.next_sentence import NextSentence, replace_half
from data.objectives.partners import Partners
from data.pipeline.batches import Records, evaluation_batches, training_batches
from data.records.manifest import Counts, Manifest
from data.records.schema import COMPACT_VERSION
from data.show_records import original_ids

NSP, MASKING = NextSentence(), MaskingConfig()


def write(folder, shards: list[list[tuple[int, int, int]]], seq_length: int = 32) -> Records:
    """Shards of (document, length of A, length of B); numbered through."""
    numbers = itertools.count()
    pieces = [
        [(d, [10 + (n := next(numbers))] * a, [500 + n] * b) for d, a, b in shard]
        for shard in shards
    ]
    return write_pieces(folder, pieces, seq_length)


def write_pieces(folder, shards: list[list[tuple[int, list, list]]], seq_length: int) -> Records:
    """Shards of (document, pieces of A, pieces of B)."""
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
        counts=Counts(
            documents=len({record[0] for shard in shards for record in shard}),
            sequences=sum(map(len, shards)),
        ),
        options="{}",
    )
    for index, shard in enumerate(shards):
        with tf.io.TFRecordWriter(manifest.shard_path(str(folder), index)) as out:
            for document, first, second in shard:
                record = {
                    "pieces": first + second,
                    "word_starts": np.packbits([True] * len(first + second)),
                    "first_length": len(first),
                    "document": document,
                }
                out.write(manifest.schema.encode(record))
    manifest.write(str(folder))
    return Records.open(str(folder))


def read(batches: tf.data.Dataset, count: int = -1) -> dict[str, np.ndarray]:
    """The batches as one, with `a` and `b`, the numbers of the records that the segments are of.

    Also `a_length` and `b_length`; `b` is -1 where there is no segment B.
    """
    rows = list(batches.take(count).as_numpy_iterator())
    batch = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    ids = original_ids(batch)
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


@pytest.mark.slow
@pytest.mark.parametrize("count", [2**31 - 64, 2**33])
def test_the_shards_of_partners_are_drawn_in_proportion(count):
    """Also of more records than int32 can number: of 8 equal shards, within five errors."""
    partners = Partners(None, 0, seed=1)
    ends = tf.constant([count // 8 * number for number in range(1, 9)], tf.int64)
    drawn = [
        int(partners.shard(tf.constant(shard, tf.int64), tf.constant(0), ends))
        for shard in range(800)
    ]
    counts = np.bincount(drawn, minlength=8)
    assert len(counts) == 8 and np.abs(counts - 100).max() < 5 * (800 * 7 / 64) ** 0.5


def test_a_pair_with_a_long_partner_is_cut_to_fit(tmp_path):
    """Of 29 pieces; what is too much is taken from the longer segment."""
    records = write(tmp_path / "r", [[(0, 20, 4), (1, 2, 25), (2, 10, 10)]])
    batch = read(training_batches(records, NSP, MASKING, 3, seed=0), 60)
    names = ("a", "b", "a_length", "b_length")
    found = set(zip(*(batch[name].tolist() for name in names), strict=True))
    assert {(a, b): lengths for a, b, *lengths in found if (a, b) != (0, 1)} == {
        (0, 0): [20, 4],
        (0, 2): [19, 10],
        (1, 0): [2, 4],
        (1, 1): [2, 25],
        (1, 2): [2, 10],
        (2, 0): [10, 4],
        (2, 1): [10, 19],
        (2, 2): [10, 10],
    }
    # Of 20 + 25 both are cut, and who keeps the odd piece is drawn.
    assert {row[2:] for row in found if row[:2] == (0, 1)} == {(14, 15), (15, 14)}


def test_replace_half_by_hand():
    """Digits of the key from the highest on: the coin, then who and which ends keep odd pieces."""
    high, low = 2**63, 2**63 - 1
    first, second = tf.constant([3, 3, 3, 3, 9, 3]), tf.constant([4, 4, 4, 0, 1, 4])
    key = tf.constant([high, low, high, high, high + 2**62 + 2**61, low], tf.uint64)
    begin, length = tf.constant([40] * 6), tf.constant([10, 9, 0, 9, 8, 0])
    found = replace_half(first, second, key, begin, length, 11)
    rows = [getattr(found, field.name).numpy().tolist() for field in dataclasses.fields(found)]
    assert rows == [
        [0, 0, 0, 0, 2, 0],  # 3 of 9 are cut, 2 in front
        [3, 3, 3, 3, 6, 3],
        [41, 3, 3, 3, 41, 3],  # 2 of 10, then 3 of 8 are cut, 1 in front
        [8, 4, 4, 0, 5, 4],
        [True, False, False, False, True, False],
        [True, True, False, False, True, False],  # without a partner, neither label counts
    ]


@given(*[st.integers(0, 300)] * 4, st.integers(2, 400), st.integers(0, 2**64 - 1))
@settings(deadline=None, max_examples=60)
def test_replace_half_cuts_as_the_segmenter_does(first, cut, second, partner, room, key):
    """Records fit into the room; segment A has a piece at least, and a full one is cut no more."""
    first = min(1 + first, room)
    second = min(second, room - first)
    found = replace_half(
        *(tf.constant([n]) for n in (first, second)),
        tf.constant([key], tf.uint64),
        tf.constant([1000]),
        tf.constant([partner]),
        room,
    )
    got = {f.name: getattr(found, f.name).numpy().item() for f in dataclasses.fields(found)}
    has_partner = second > 0 and partner > 0
    replaced = bool(key >> 63) and has_partner
    assert (got["label"], got["weight"]) == (replaced, has_partner)
    other, begin = (partner, 1000) if replaced else (second, first)
    odd = np.array([key >> 62 & 1])
    kept = [n.item() for n in truncated_lengths(*np.array([[first], [other]]), room, odd)]
    assert [got["first_length"], got["second_length"]] == kept
    for start, length, lost in (
        (got["first_begin"], kept[0], first - kept[0]),
        (got["second_begin"] - begin, kept[1], other - kept[1]),
    ):
        assert abs(2 * start - lost) <= 1 and 0 <= start <= start + length <= length + lost


def test_cut_ends_and_a_full_sequence_do_not_tell_the_label(tmp_path):
    """The best rule that knows three bits (is it full, do A and B end as sentences do) is a guess.

    Sentences of 4 to 30 pieces; one that ends is piece 7. Where the partner was cut at its end
    alone, from records full or not, the rule was right in 0.554 of all cases.
    """
    rng = np.random.default_rng(0)
    sizes = rng.integers(4, 31, (600, 30))
    bounds = np.append(0, np.cumsum(sizes))
    pieces = np.full(bounds[-1], 10, np.uint16)
    pieces[bounds[1:] - 1] = 7
    pairs = segment_pairs(bounds, bounds[::30], np.arange(600, dtype=np.uint64), 61)
    rows = [
        (document, pieces[a : a + n].tolist(), pieces[b : b + m].tolist())
        for a, n, b, m, _, document, _, _ in zip(*(c.tolist() for c in pairs), strict=True)
    ]
    records = write_pieces(tmp_path / "r", [rows], 64)
    table = np.zeros((2, 8))
    batches = training_batches(records, NSP, MASKING, 500, seed=0).take(3 * len(rows) // 500)
    for batch in batches.as_numpy_iterator():
        ids, length = original_ids(batch), batch["input_mask"].sum(1)
        a_end, b_end = length - batch["input_type_ids"].sum(1) - 2, length - 2
        ends = [np.take_along_axis(ids, end[:, None], axis=1)[:, 0] == 7 for end in (a_end, b_end)]
        cell = np.stack([length == 64, *ends], axis=1) @ [4, 2, 1]
        np.add.at(table, (batch["pair_label"], cell), batch["pair_weight"])
    assert table.sum() > 15_000
    assert table.max(axis=0).sum() / table.sum() < 0.52


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
