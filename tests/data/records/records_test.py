"""Tests that a folder of records opens only when it is whole and of this version."""

import dataclasses
import json
import os
import pathlib
import shutil

import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from data.records.manifest import MANIFEST, TOKENIZER, Counts, Manifest, shard_name, tokenizer_of
from data.records.schema import COMPACT_VERSION, compact_schema


@pytest.fixture
def manifest() -> Manifest:
    counts = Counts(documents=3, sequences=7, pieces=700)
    return Manifest(
        COMPACT_VERSION,
        "compact",
        512,
        30_000,
        (0, 1, 2, 3, 4),
        "abc",
        "def",
        (4, 0, 3),
        counts,
        json.dumps({"seed": 1}),
    )


@pytest.fixture
def folder(manifest, tmp_path) -> str:
    for shard in range(3):
        (tmp_path / shard_name(shard, 3)).write_bytes(b"")
    manifest.write(str(tmp_path))
    return str(tmp_path)


def edit(folder: str, **changes: object) -> None:
    with open(f"{folder}/{MANIFEST}") as file:
        values = json.load(file) | changes
    with open(f"{folder}/{MANIFEST}", "w") as file:
        json.dump(values, file)


def test_a_manifest_comes_back_as_it_was_written(manifest, folder):
    assert Manifest.read(folder) == manifest
    assert manifest.num_records == 7
    assert manifest.schema == compact_schema(512, 30_000)
    assert manifest.shard_path(folder, 2) == f"{folder}/records-00002-of-00003.tfrecord"


def test_counts_add_up():
    one = Counts(*range(1, 1 + len(dataclasses.fields(Counts))))
    assert dataclasses.astuple(one + one) == tuple(2 * n for n in dataclasses.astuple(one))
    assert one + Counts() == one


def test_a_folder_without_manifest_is_not_found(tmp_path):
    with pytest.raises(InputNotFoundError, match=r"no manifest.json in .*python -m data.build"):
        Manifest.read(str(tmp_path))


@pytest.mark.parametrize("keys", [{}, {"something": "new"}])
def test_another_version_is_refused_whatever_its_keys(folder, keys):
    edit(folder, schema_version=COMPACT_VERSION + 1, **keys)
    with pytest.raises(InputError, match=r"version 3, but this program reads version 2\. Build"):
        Manifest.read(folder)


@pytest.mark.parametrize("content", ["", "[1]", '{"name": "a web page"}', "\xff"])
def test_another_programs_manifest_is_refused(tmp_path, content):
    (tmp_path / MANIFEST).write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=r"must be a manifest of `python -m data.build`"):
        Manifest.read(str(tmp_path))


def test_an_incomplete_manifest_is_refused(folder):
    with open(f"{folder}/{MANIFEST}", "w") as file:
        json.dump({"schema_version": COMPACT_VERSION, "layout": "compact"}, file)
    with pytest.raises(InputError, match=r"must be a manifest"):
        Manifest.read(folder)


def test_a_manifest_of_an_earlier_version_may_lack_what_has_a_default(folder):
    with open(f"{folder}/{MANIFEST}") as file:
        values = json.load(file)
    for key in ("sketch", "vocab_size"):
        del values[key]
        with open(f"{folder}/{MANIFEST}", "w") as file:
            json.dump(values, file)
        if key == "sketch":
            assert Manifest.read(folder).sketch == ""
    with pytest.raises(InputError, match=r"`vocab_size`.* Build the records again"):
        Manifest.read(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"layout": "dense"}, "`layout` must be one of compact, reference. Received: 'dense'"),
        ({"seq_length": 10**9}, "`seq_length` must be at most 1,048,576. Received: 1000000000"),
        ({"seq_length": "512"}, "`seq_length` must be of type int. Received: '512'"),
        ({"special_ids": [0, 1, 2, 3]}, "must have five `special_ids` in [0, `vocab_size`)"),
        ({"special_ids": [0, 1, 2, 3, 30_000]}, "must have five `special_ids` in"),
        ({"shards": [4, -1, 3]}, "must have `shards` of 0 to 2^40 records"),
        ({"shards": [0, 0]}, "must have a record in one of its `shards`"),
        ({"feature_names": "google"}, "must have `feature_names` empty"),
        ({"layout": "reference"}, "must have `feature_names` google or model_garden"),
        ({"max_predictions": 513}, "must have at most `seq_length` `max_predictions`"),
        ({"options": "["}, "`options` of a manifest must be JSON"),
        ({"counts": {"documents": None}}, "`counts.documents` must be of type int"),
    ],
)
def test_a_manifest_with_impossible_values_is_refused(folder, changes, words):
    edit(folder, **changes)
    with pytest.raises(InputError) as error:
        Manifest.read(folder)
    assert words in str(error.value)


def test_a_missing_shard_is_named(folder, tmp_path):
    (tmp_path / shard_name(1, 3)).unlink()
    with pytest.raises(InputNotFoundError, match=r"records-00001-of-00003.tfrecord.*is missing"):
        Manifest.read(folder)


def test_a_shard_that_is_no_file_is_named_and_never_waited_for(folder, tmp_path):
    shard = tmp_path / shard_name(1, 3)
    shard.unlink()
    os.mkfifo(shard)
    with pytest.raises(InputError) as error:
        Manifest.read(folder)
    assert str(error.value) == (
        f"{shard} must be a file. Received: a pipe. Write its content to a file."
    )


def test_records_are_read_from_a_bucket(write_records, tiny_tokenizer, tmp_path):
    """`ram://` is a file system of TensorFlow, as gs:// is: no path of the machine reads it."""
    import tensorflow as tf

    from data.objectives.masking import MaskingConfig
    from data.objectives.sentence_order import SentenceOrder
    from data.pipeline.batches import Records, training_batches

    shards = [[(range(5, 15), [1] * 10, 4)], [(range(20, 29), [1] * 9, 5)]]
    here = write_records(tmp_path / "records", shards, seq_length=32)
    shutil.copytree(tiny_tokenizer, tmp_path / "records" / TOKENIZER)
    for path in filter(pathlib.Path.is_file, (tmp_path / "records").rglob("*")):
        tf.io.gfile.copy(str(path), f"ram://bucket/{path.relative_to(tmp_path)}")
    there = Records.open("ram://bucket/records")
    assert there.manifest == here.manifest
    assert tokenizer_of(there.folder).fingerprint == tokenizer_of(here.folder).fingerprint

    def batch(records: Records) -> dict:
        batches = training_batches(records, SentenceOrder(), MaskingConfig(), 4, seed=0)
        return next(batches.as_numpy_iterator())

    local, remote = batch(here), batch(there)
    assert all((local[name] == remote[name]).all() for name in local)
    tf.io.gfile.remove("ram://bucket/records/" + shard_name(1, 2))
    with pytest.raises(InputNotFoundError, match=r"ram://.*records-00001-of-00002.*is missing"):
        Records.open(there.folder)
    with pytest.raises(InputNotFoundError, match=r"no manifest.json in 'ram://bucket/nothing'"):
        Records.open("ram://bucket/nothing")
