"""Tests that masked records are trained on as they are, ours and others', and damage is named."""

import dataclasses
import json
import pathlib
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.text.tokenizer import load_tokenizer
from data.build import BuildOptions, build
from data.import_records import ImportOptions, import_records
from data.objectives.masking import MaskingConfig
from data.objectives.next_sentence import NextSentence
from data.objectives.pair_objective import NoPairs, PairObjective
from data.objectives.sentence_order import SentenceOrder
from data.pipeline.batches import Records, evaluation_batches, training_batches
from data.records.writer import write_records
from data.show_records import ShowRecordsOptions, show_records
from pretraining import evaluate, train
from pretraining.loop.config import resolve
from pretraining.loop.groups import experiment

SEQ, BATCH, MASKING, SOP, NSP = 32, 16, MaskingConfig(), SentenceOrder(), NextSentence()


@pytest.fixture(scope="module")
def built(sentence_maker, tiny_tokenizer, tmp_path_factory):
    """layout -> folder of records."""
    rng = random.Random(3)
    documents = ["\n".join(sentence_maker(rng, 4) for _ in range(40)) for _ in range(10)]
    folder = tmp_path_factory.mktemp("built")
    (folder / "corpus.txt").write_text("\n\n".join(documents))

    def make(layout: str) -> str:
        options = BuildOptions(
            f"sentences:{folder}/corpus.txt",
            tiny_tokenizer,
            str(folder / layout),
            seq_length=SEQ,
            layout=layout,
            num_workers=1,
        )
        build(options)
        return options.output

    return make


@pytest.fixture(scope="module")
def imported(built, tiny_tokenizer, tmp_path_factory):
    """pair -> the reference build's files, imported as those of another project."""

    def make(pair: str = "sop", **changes) -> str:
        options = ImportOptions(
            built("reference") + "/*.tfrecord",
            tiny_tokenizer,
            str(tmp_path_factory.mktemp("imported") / "out"),
            pair,
        )
        options = dataclasses.replace(options, **changes)
        import_records(options)
        return options.output

    return make


def everything(folder: str, objective: PairObjective, size: int) -> dict[str, np.ndarray]:
    batches = evaluation_batches(Records.open(folder), objective, MASKING, size)
    rows = list(batches.as_numpy_iterator())
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def test_a_build_and_its_import_are_the_same_batches(built, imported):
    folder, other = built("reference"), imported()
    mine, theirs = Records.open(folder).manifest, Records.open(other).manifest
    for name in ("pieces", "sequences", "sequences_of_label_1", "sequences_without_pair"):
        assert getattr(theirs.counts, name) == getattr(mine.counts, name)
    assert (theirs.shards, theirs.vocab_size) == (mine.shards, mine.vocab_size)
    batch, again = everything(folder, SOP, BATCH), everything(other, SOP, BATCH)
    for name, values in batch.items():
        np.testing.assert_array_equal(values, again[name], name)
    size = mine.num_records
    assert len(batch["pair_label"]) == -(-size // BATCH) * BATCH > size  # filled up
    assert batch["pair_weight"].tolist() == [1.0] * size + [0.0] * (len(batch["pair_label"]) - size)
    assert not batch["masked_lm_weights"][size:].any()
    assert batch["pair_label"][:size].sum() == mine.counts.sequences_of_label_1
    assert not everything(folder, NoPairs(), BATCH)["pair_weight"].any()


def test_training_reads_each_record_once_an_epoch_and_seeks(built):
    records = Records.open(built("reference"))
    size = records.manifest.num_records
    (epoch,) = training_batches(records, SOP, MASKING, size, seed=1).take(1).as_numpy_iterator()
    whole = everything(records.folder, SOP, size)["input_word_ids"]
    seen = epoch["input_word_ids"]
    assert not np.array_equal(seen, whole)
    assert sorted(map(bytes, seen)) == sorted(map(bytes, whole))
    (later,) = training_batches(records, SOP, MASKING, 8, 1, 3).take(1).as_numpy_iterator()
    np.testing.assert_array_equal(later["input_word_ids"], seen[24:32])


def test_objectives_that_the_records_lack_are_refused(built, imported):
    ours, nsp = Records.open(built("reference")), Records.open(imported("nsp"))
    for records, objective, labels in ((ours, NSP, "sop"), (nsp, SOP, "nsp")):
        for make in (training_batches, evaluation_batches):
            with pytest.raises(ConfigError, match=f"`objective.pair` must .* {labels}, or none"):
                make(records, objective, MASKING, 8, 0)
        with pytest.raises(ConfigError, match=f"the records' labels, {labels}, or none"):
            resolve(experiment("smoke"), [f"objective.pair={objective.name}"], records.manifest)
    with pytest.raises(ConfigError, match=r"`masking.rate` applies only to the compact layout"):
        resolve(experiment("smoke"), ["masking.rate=0.2"], ours.manifest)
    without = imported("none")
    assert Records.open(without).manifest.counts.sequences_of_label_1 == 0
    assert not everything(without, NoPairs(), BATCH)["pair_weight"].any()
    with pytest.raises(ConfigError, match="none, or none"):
        training_batches(Records.open(without), SOP, MASKING, 8, 0)


def test_another_tokenizer_is_refused(imported, tiny_tokenizer, tmp_path):
    tokenizer = load_tokenizer(tiny_tokenizer)
    pieces = tokenizer.vocabulary.pieces
    special = ["[PAD]", "[UNK]", "[SEP]", "[CLS]", "[MASK]"]
    (tmp_path / "vocab.txt").write_text("\n".join([*special, *pieces[5:]]) + "\n")
    with pytest.raises(InputError, match=r"--tokenizer must be the one.* 200 pieces.* \[2\]"):
        imported(tokenizer=str(tmp_path / "vocab.txt"))
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    with pytest.raises(InputError, match="--tokenizer must be the one that made .*: 5 pieces"):
        imported(tokenizer=str(tmp_path / "vocab.txt"))
    with pytest.raises(InputError, match="--pair must be sop, nsp, none"):
        imported("order")


def damaged(folder: str, copy: pathlib.Path, how: str, number: int) -> Records:
    """A copy of a folder: a bit of record `number` flipped, or the file ends before or in it."""
    shutil.copytree(folder, copy)
    records = Records.open(str(copy))
    ((path, _),) = records.shards()
    content = bytearray(pathlib.Path(path).read_bytes())
    at = 0
    for _ in range(number):
        at += 16 + int.from_bytes(content[at : at + 8], "little")
    if how == "flipped":
        content[at + 20] ^= 16
    pathlib.Path(path).write_bytes(
        content if how == "flipped" else content[: at + 30 * (how == "torn")]
    )
    return records


@pytest.mark.parametrize(
    ("layout", "how"),
    [
        ("compact", "flipped"),
        pytest.param("compact", "ended", marks=pytest.mark.slow),
        ("reference", "torn"),
    ],
)
def test_a_damaged_file_is_named_with_its_record(built, tmp_path, layout, how):
    records = damaged(built(layout), tmp_path / "copy", how, 7)
    size = records.manifest.num_records
    wanted = rf"records-00000-of-00001.*must have {size} records. Received: 7"
    if how != "ended":
        wanted = rf"records-00000-of-00001.*damaged at record 7 of {size} \(from 0\)"
    for batches in (
        training_batches(records, SOP, MASKING, 4, 0),
        evaluation_batches(records, SOP, MASKING, 4),
    ):
        with pytest.raises(InputError, match=wanted), records.damage_as_input_error():
            for _ in batches.take(size):
                pass


@pytest.mark.parametrize("layout", ["compact", "reference"])
def test_a_record_with_other_features_is_named(built, tmp_path, layout):
    records = Records.open(shutil.copytree(built(layout), tmp_path / "copy").as_posix())
    ((path, _),) = records.shards()
    raw = [record.numpy() for record in tf.data.TFRecordDataset(path)]
    write_records(path, [*raw[:3], b"\xff" * 9, *raw[4:]])
    wanted = r"records-00000-of-00001.*, but record 3 \(from 0\) has others"
    with pytest.raises(InputError, match=wanted), records.damage_as_input_error():
        list(evaluation_batches(records, SOP, MASKING, 4))


def test_files_of_other_records_are_not_imported(imported, tmp_path):
    write_records(str(tmp_path / "a.tfrecord"), [b"\xff" * 9])
    with pytest.raises(InputError, match="a.tfrecord' must be a TFRecord file of masked records"):
        imported(files=f"{tmp_path}/*.tfrecord")


def test_a_damaged_file_is_not_imported(built, imported, tmp_path):
    records = damaged(built("reference"), tmp_path / "copy", "flipped", 3)
    with pytest.raises(InputError, match="--files: .*damaged at record 3"):
        imported(files=f"{records.folder}/*.tfrecord")


@pytest.mark.parametrize(
    ("feature", "value", "words"),
    [
        ("next_sentence_labels", 7, "`pair_label` must be from 0 to 1. Received: 7"),
        ("segment_ids", 5, "`input_type_ids` must be from 0 to 1. Received: 5"),
        ("input_ids", -5, "`input_word_ids` must be .* Received: -5"),
        ("masked_lm_positions", SEQ, "`masked_lm_positions` must be from 0 to 31. Received: 32"),
    ],
)
def test_impossible_values_are_refused(built, imported, tmp_path, feature, value, words):
    (path,) = pathlib.Path(built("reference")).glob("*.tfrecord")
    with tf.io.TFRecordWriter(str(tmp_path / "wrong.tfrecord")) as writer:
        for number, record in enumerate(tf.data.TFRecordDataset(str(path)).as_numpy_iterator()):
            example = tf.train.Example.FromString(record)
            if number == 1:
                example.features.feature[feature].int64_list.value[-1] = value
            writer.write(example.SerializeToString())
    with pytest.raises(InputError, match=rf"--files: {tmp_path}/wrong.tfrecord: {words}"):
        imported(files=str(tmp_path / "*.tfrecord"))


@pytest.mark.slow
def test_the_commands_take_them(imported, tmp_path, capsys):
    folder, run_dir = imported(), str(tmp_path / "run")
    settings = (
        "loop.steps=2",
        "loop.steps_per_loop=1",
        "loop.checkpoint_every=2",
        "loop.global_batch_size=4",
        "optimizer.warmup_steps=0",
    )
    train.main(train.TrainOptions(folder, run_dir, "smoke", device="cpu", set=settings))
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["step"] == 2 and 0 < result["loss/mlm"] < 20
    evaluate.main(evaluate.EvaluateOptions(run_dir, folder))
    show_records(ShowRecordsOptions(folder, num=1))
    shown = capsys.readouterr().out
    count = Records.open(folder).manifest.num_records
    assert "MLM loss" in shown and f"| records | {count} |" in shown
    assert (
        "Masked records with google's feature names, 32 pieces and 5 prediction slots each."
        in shown
    )


def test_an_import_again_is_complete_already(imported, capsys):
    folder = imported()
    (options,) = [json.loads((pathlib.Path(folder) / "manifest.json").read_text())["options"]]
    again = imported(output=folder)
    assert again == folder and "is already complete" in capsys.readouterr().out
    assert json.loads((pathlib.Path(folder) / "manifest.json").read_text())["options"] == options
    with pytest.raises(InputError, match="--output must name a new or empty folder"):
        imported(output=folder, pair="nsp")


def test_a_folder_is_no_file(imported, tmp_path):
    with pytest.raises(InputError, match=r"no file matches .* such as 'folder/\*.tfrecord'"):
        imported(files=str(tmp_path))


def test_files_of_two_kinds_are_told(imported, sentence_maker, tiny_tokenizer, tmp_path):
    for number, length in enumerate((16, 32)):
        rng = random.Random(number)
        text = "\n".join(sentence_maker(rng, 4) for _ in range(40))
        (tmp_path / "corpus.txt").write_text(text)
        folder = tmp_path / str(length)
        build(
            BuildOptions(
                f"sentences:{tmp_path}/corpus.txt",
                tiny_tokenizer,
                str(folder),
                seq_length=length,
                layout="reference",
                num_workers=1,
            )
        )
        for path in folder.glob("*.tfrecord"):
            shutil.copy(path, tmp_path / f"{length}-{path.name}")
    with pytest.raises(InputError) as error:
        imported(files=f"{tmp_path}/*.tfrecord")
    assert str(error.value) == (
        f"--files: {tmp_path}/32-records-00000-of-00001.tfrecord must hold records as the first "
        "one, of google's features with 16 pieces and 2 prediction slots, but record 0 (from 0) is "
        "not. Import each kind into its own --output, or make the file again."
    )


@pytest.mark.parametrize("record", [b"\xff" * 9, b""])
def test_a_record_that_is_none_is_named(built, imported, tmp_path, record):
    (path,) = pathlib.Path(built("reference")).glob("*.tfrecord")
    raw = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    write_records(str(tmp_path / "a.tfrecord"), raw)
    write_records(str(tmp_path / "b.tfrecord"), [*raw[:3], record, *raw[3:]])
    with pytest.raises(InputError, match=r"^--files: .*/b\.tfrecord must .*, but record 3 \(from"):
        imported(files=str(tmp_path / "*.tfrecord"))
