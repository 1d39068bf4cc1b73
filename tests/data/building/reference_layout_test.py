"""Tests that other projects' loaders read the reference layout, and that we read theirs."""

import dataclasses
import random

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.runtime.errors import InputError
from albert_tf.text.tokenizer import load_tokenizer
from data.build import BuildOptions, build
from data.pipeline.record_stream import record_stream
from data.records.manifest import Manifest
from data.records.reference_reader import StaticRecords, count_records
from data.records.writer import encode_examples

SEQ, SLOTS = 32, 5


@pytest.fixture(scope="module")
def corpus(sentence_maker, tmp_path_factory) -> str:
    """One sentence a line; the last two documents have one sentence."""
    rng = random.Random(3)
    documents = ["\n".join(sentence_maker(rng, rng.randint(2, 6)) for _ in range(60))] * 1
    documents += ["\n".join(sentence_maker(rng, 4) for _ in range(40)) for _ in range(10)]
    documents += ["Ba de fi go ku la.", "Po."]
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text("\n\n".join(documents))
    return f"sentences:{path}"


@pytest.fixture(scope="module")
def built(corpus, tiny_tokenizer, tmp_path_factory):
    """(names, quirks) -> folder of records."""

    def make(names: str, **changes) -> str:
        out = str(tmp_path_factory.mktemp("built") / "out")
        options = BuildOptions(
            corpus,
            tiny_tokenizer,
            out,
            seq_length=SEQ,
            layout="reference",
            feature_names=names,
            num_workers=1,
        )
        build(dataclasses.replace(options, **changes))
        return out

    return make


def google_spec(seq: int = SEQ, slots: int = SLOTS) -> dict:
    """What Google's run_pretraining.py asks of a record."""
    spec = {
        name: tf.io.FixedLenFeature([seq], tf.int64)
        for name in ("input_ids", "input_mask", "segment_ids", "token_boundary")
    }
    for name in ("masked_lm_positions", "masked_lm_ids"):
        spec[name] = tf.io.FixedLenFeature([slots], tf.int64)
    spec["masked_lm_weights"] = tf.io.FixedLenFeature([slots], tf.float32)
    spec["next_sentence_labels"] = tf.io.FixedLenFeature([1], tf.int64)
    return spec


def records_of(folder: str) -> list[dict[str, np.ndarray]]:
    manifest = Manifest.read(folder)
    paths = [manifest.shard_path(folder, shard) for shard in range(len(manifest.shards))]
    dataset = tf.data.TFRecordDataset(paths)
    slots = manifest.max_predictions
    dataset = dataset.map(lambda r: tf.io.parse_single_example(r, google_spec(SEQ, slots)))
    return list(dataset.as_numpy_iterator())


def test_google_reader_finds_whole_masked_sequences(built, corpus, tiny_tokenizer):
    tokenizer, folder = load_tokenizer(tiny_tokenizer), built("google")
    with open(corpus.removeprefix("sentences:")) as file:
        texts = [text.split("\n") for text in file.read().split("\n\n")]
    documents = [[i for ids in tokenizer.encode_batch(text) for i in ids] for text in texts]
    stored = [" " + " ".join(map(str, document)) + " " for document in documents]
    records, num_exact = records_of(folder), 0
    assert len(records) == Manifest.read(folder).num_records > 100
    for record in records:
        length = int(record["input_mask"].sum())
        assert record["input_mask"].tolist() == [1] * length + [0] * (SEQ - length)
        used = int(record["masked_lm_weights"].sum())
        positions = record["masked_lm_positions"][:used]
        assert (np.diff(positions) > 0).all() and 0 < positions[0] and positions[-1] < length - 1
        ids = record["input_ids"].copy()
        ids[positions] = record["masked_lm_ids"][:used]
        assert ids[0] == 2 and ids[length - 1] == 3 and not ids[length:].any()
        middle = ids[: length - 1].tolist().index(3)
        assert sorted(np.flatnonzero(ids == 3)) == [middle, length - 1]
        assert record["segment_ids"].tolist() == (
            [0] * (middle + 1) + [1] * (length - 1 - middle) + [0] * (SEQ - length)
        )
        first, second = ids[1:middle], ids[middle + 1 : length - 1]
        label = record["next_sentence_labels"].item()
        in_order = np.concatenate([second, first] if label else [first, second])
        text = " " + " ".join(map(str, in_order)) + " "
        assert any(text in document for document in stored) or length == SEQ  # cut pairs have gaps
        expected = np.isin(ids, [2, 3]) | tokenizer.is_word_start[ids]
        assert record["token_boundary"].tolist() == (expected & (np.arange(SEQ) < length)).tolist()
        words = np.split(np.arange(length), np.flatnonzero(expected[:length])[1:])
        words = [w for w in words if ids[w[0]] not in (2, 3) and not np.isin(w, positions).any()]
        missing = min(SLOTS, max(1, round(0.15 * length))) - used
        assert missing >= 0 and (not missing or all(len(word) > missing for word in words))
        num_exact += not missing
    assert num_exact > 0.9 * len(records)  # else no word that is left fits


def test_labels_are_balanced_and_lone_sentences_get_a_true_one(built):
    """A document of one sentence is cut in its middle; one of a single piece is left out."""
    folder = built("google", dupe_factor=5)
    labels = np.array([record["next_sentence_labels"].item() for record in records_of(folder)])
    assert abs(labels.mean() - 0.5) < 5 * 0.5 / len(labels) ** 0.5
    counts = Manifest.read(folder).counts
    assert counts.sequences_of_label_1 == labels.sum()
    assert counts.sequences_without_pair == 0 and counts.single_sentence_documents == 2


@pytest.mark.parametrize("names", ["google", "model_garden"])
def test_model_gardens_loader_reads_them(built, names):
    from official.nlp.data import pretrain_dataloader

    folder = built(names)
    manifest = Manifest.read(folder)
    config = pretrain_dataloader.BertPretrainDataConfig(
        input_path=manifest.shard_path(folder, 0),
        seq_length=SEQ,
        max_predictions_per_seq=SLOTS,
        global_batch_size=manifest.num_records,
        is_training=False,
        drop_remainder=False,
        use_v2_feature_names=names == "model_garden",
    )
    theirs = next(iter(pretrain_dataloader.BertPretrainDataLoader(config).load()))
    raw = tf.data.TFRecordDataset(config.input_path).batch(10**6).get_single_element()
    ours = StaticRecords.of_build(folder, manifest, has_pairs=True).parse(raw)
    np.testing.assert_array_equal(theirs.pop("next_sentence_labels")[:, 0], ours.pop("pair_label"))
    assert ours.pop("pair_weight").numpy().tolist() == [1.0] * manifest.num_records
    assert set(theirs) == set(ours)
    for name, values in theirs.items():
        assert values.dtype == ours[name].dtype
        np.testing.assert_array_equal(values, ours[name])


def write(path, records: list[dict[str, list]]) -> None:
    with tf.io.TFRecordWriter(str(path)) as out:
        for record in records:
            wire = {
                name: tf.train.Feature(float_list=tf.train.FloatList(value=values))
                if name == "masked_lm_weights"
                else tf.train.Feature(int64_list=tf.train.Int64List(value=values))
                for name, values in record.items()
            }
            example = tf.train.Example(features=tf.train.Features(feature=wire))
            out.write(example.SerializeToString())


def a_record(names: tuple[str, str], i: int) -> dict[str, list]:
    return {
        names[0]: [2, 4, 3, 9, 3, 0],
        names[1]: [0, 0, 0, 1, 1, 0],
        "input_mask": [1] * 5 + [0],
        "masked_lm_positions": [1, 0],
        "masked_lm_ids": [10 + i, 0],
        "masked_lm_weights": [1.0, 0.0],
        "next_sentence_labels": [i % 2],
    }


@pytest.mark.parametrize(
    "names", [("input_ids", "segment_ids"), ("input_word_ids", "input_type_ids")]
)
def test_files_without_a_manifest_become_batches(tmp_path, names):
    """As Google's or Model Garden's tool writes them, in several files, one of them empty."""
    write(tmp_path / "a", [a_record(names, i) for i in range(3)])
    write(tmp_path / "b", [])
    write(tmp_path / "c", [a_record(names, i) for i in range(3, 5)])
    records = StaticRecords.of_files([str(tmp_path / name) for name in "abc"])
    assert [size for _, size in records.shards] == [3, 2]
    assert (records.seq_length, records.max_predictions) == (6, 2)
    stream = record_stream(list(records.shards), seed=1, start=0)
    raw = [r for r, _, _ in stream.take(10)]
    batch = records.parse(tf.stack(raw[:5]))
    seen = batch["masked_lm_ids"][:, 0].numpy()
    assert sorted(seen) == [10, 11, 12, 13, 14]
    assert batch["pair_label"].numpy().tolist() == [(i - 10) % 2 for i in seen]
    assert batch["input_word_ids"].dtype == batch["pair_label"].dtype == tf.int32
    again = [r for r, _, _ in record_stream(list(records.shards), seed=1, start=4).take(6)]
    assert [r.numpy() for r in again] == [r.numpy() for r in raw[4:]]  # a position is a number


def test_other_records_are_refused(tmp_path):
    write(tmp_path / "other", [{"input_ids": [1], "input_mask": [1]}])
    with pytest.raises(InputError, match="other.*feature names of google or model_garden"):
        StaticRecords.of_files([str(tmp_path / "other")])
    path = tmp_path / "torn"
    write(path, [a_record(("input_ids", "segment_ids"), i) for i in range(3)])
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match="torn.*inside record 2"):
        count_records(str(path))


def test_encoded_examples_are_what_the_messages_say():
    """Any width of varints, floats, and names in the order of the deterministic messages."""
    rng = np.random.default_rng(0)
    features = {
        "b": rng.integers(0, 2**16, (50, 7)),
        "a": rng.integers(0, 2, (50, 1)),
        "w": rng.random((50, 3)).astype(np.float32),
        "m": rng.integers(0, 200, (50, 300)),
    }
    records = encode_examples(features, {"b": 2**16 - 1, "m": 199})
    assert len({len(record) for record in records}) == 1
    for row, record in enumerate(records):
        found = tf.train.Example.FromString(record).features.feature
        for name, values in features.items():
            kind = "float_list" if name == "w" else "int64_list"
            assert list(getattr(found[name], kind).value) == values[row].tolist()
