"""Tests that records are printed as they are read, and counted right."""

import dataclasses
import json
import pathlib
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.runtime import commands
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.text.tokenizer import Tokenizer
from data.build import BuildOptions, build
from data.corpora.glance import Sampled
from data.pipeline.batches import Records
from data.records.manifest import Manifest
from data.records.writer import write_records
from data.show_records import (
    ShowRecordsOptions,
    facts_of,
    masked_runs,
    original_ids,
    readable,
    show_records,
    statistics,
)

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c", "d", "e"]


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer("\n".join(PIECES).encode())


@pytest.fixture
def batch() -> dict[str, np.ndarray]:
    """[CLS] a b ##c [SEP] d e a [SEP] with b ##c hidden, d kept and e replaced, and a full row."""
    return {
        "input_word_ids": np.array(
            [[2, 5, 4, 4, 3, 8, 5, 5, 3, 0], [2, 5, 5, 4, 3, 4, 5, 5, 5, 3]]
        ),
        "input_mask": np.array([[1] * 9 + [0], [1] * 10]),
        "input_type_ids": np.array([[0] * 5 + [1] * 4 + [0], [0] * 5 + [1] * 5]),
        "masked_lm_positions": np.array([[2, 3, 5, 6], [3, 5, 0, 0]]),
        "masked_lm_ids": np.array([[6, 7, 8, 9], [8, 7, 0, 0]]),
        "masked_lm_weights": np.array([[1, 1, 1, 1], [1, 1, 0, 0]], np.float32),
        "pair_label": np.array([1, 0]),
        "pair_weight": np.array([1, 0], np.float32),
    }


def test_a_record_as_a_person_reads_it(batch, tokenizer):
    assert original_ids(batch)[0].tolist() == [2, 5, 6, 7, 3, 8, 9, 5, 3, 0]
    assert readable(batch, 0, tokenizer).splitlines() == [
        "  A: [CLS] a {b} {##c} [SEP]",
        "  B: {d=} {e>a} a [SEP]",
    ]


def test_runs_are_counted_in_words_and_end_with_segments(batch, tokenizer):
    # Row 0: "b ##c" is one word, "d e" two. Row 1: d, and behind [SEP] ##c, a word by its place.
    assert masked_runs(batch, tokenizer) == {1: 3, 2: 1}


def test_the_table_by_hand(batch, tokenizer):
    table = statistics(iter([batch]), tokenizer)
    rows = dict(re.findall(r"\| ([^|]+) \| ([^|]+) \|", table.split("|---|---|\n")[1]))
    assert rows == {
        "records": "2",
        "mean length, with [CLS] and [SEP]": "9.5 of 10",
        "length, 5 / 25 / 50 / 75 / 95 %": "9 / 9 / 10 / 10 / 10",
        "padding": "0.0500",
        "full sequences": "0.5000",
        "masked, of all pieces": f"{6 / 19:.4f}",
        "[MASK] / replaced / kept": f"{4 / 6:.4f} / {1 / 6:.4f} / {1 / 6:.4f}",
        "runs of 1 / 2 / 3 / more masked words": "0.750 / 0.250 / 0.000 / 0.000",
        "label 1, of pairs": "1.0000",
        "without a pair": "0.5000",
    }


@pytest.mark.slow_parameters("nsp")
@pytest.mark.parametrize("objective", ["sop", "nsp", "none"])
def test_a_folder_of_records(tiny_records, capsys, objective):
    show_records(ShowRecordsOptions(tiny_records, num=2, objective=objective, sample=0))
    shown = capsys.readouterr().out
    assert {"sop": "1: swapped", "nsp": "1: B is from", "none": "no pair"}[objective] in shown
    assert len(re.findall(r"^record \d+: label (?:[01]|none), \d+ pieces", shown, re.M)) == 2
    assert "{" in shown.split("record 0")[1] and "| `first_length` | int64 |" in shown
    masked = float(re.search(r"masked, of all pieces \| ([\d.]+)", shown)[1])
    assert 0.13 < masked < 0.18
    share = float(re.search(r"label 1, of pairs \| ([\d.]+)", shown)[1])
    assert share == 0 if objective == "none" else 0.4 < share < 0.6


def test_the_facts_are_those_of_the_records_alone(tiny_records, capsys, monkeypatch):
    """Not of the copies that fill a batch."""
    total, shown = Manifest.read(tiny_records).num_records, []
    for size in (total, total + 300):
        monkeypatch.setattr("data.show_records._BATCH", size)
        show_records(ShowRecordsOptions(tiny_records, num=0))
        shown.append(re.findall("pieces a word.*|words .*", capsys.readouterr().out))
    assert shown[0] == shown[1] and len(shown[0]) > 1


def test_unknown_pieces_are_those_of_the_text(tiny_records, capsys, monkeypatch):
    """Where there are many, the pieces do not show what the text is, so that none recommends."""
    manifest = Manifest.read(tiny_records)
    counts = dataclasses.replace(manifest.counts, unknown_pieces=manifest.counts.pieces // 2)
    facts = facts_of(dataclasses.replace(manifest, counts=counts), Sampled(1.5, 0.0, True))
    share = counts.unknown_pieces / (counts.pieces + counts.pieces_lost)
    assert facts.sampled.unknown == share > 0.4
    monkeypatch.setattr("data.show_records.facts_of", lambda *_: facts)
    show_records(ShowRecordsOptions(tiny_records, num=0))
    shown = capsys.readouterr().out
    assert f"| unknown pieces | {share:.2%} |" in shown
    assert "No recommendation" in shown and "Recommended" not in shown


def test_the_text_is_counted_once(tiny_records):
    """Records of the reference layout hold it --dupe_factor times."""
    manifest, sampled = Manifest.read(tiny_records), Sampled(1.5, 0.0, True)
    words = facts_of(manifest, sampled).words
    options = json.dumps(manifest.build_options | {"dupe_factor": 10})
    repeated = facts_of(dataclasses.replace(manifest, options=options), sampled)
    assert repeated.words == pytest.approx(words / 10, abs=1)


@pytest.mark.slow_parameters("270-270")
@pytest.mark.parametrize(("num", "printed"), [(2, 2), (270, 270), (300, 280)])
def test_records_without_a_prediction_count_like_others(
    write_records, tmp_path, capsys, num, printed
):
    """Every other one is a single word of 12 pieces, more than the budget: nothing is masked."""
    word, words = [1] + [0] * 11, [1] * 12
    rows = [([9] * 12, words if number % 2 else word, 12) for number in range(280)]
    folder = str(tmp_path / "r")
    write_records(tmp_path / "r", [rows], 16)
    vocabulary = PIECES + [f"x{number}" for number in range(90)]
    Tokenizer("\n".join(vocabulary).encode()).save(tmp_path / "r" / "tokenizer")
    show_records(ShowRecordsOptions(folder, num=num, sample=4))
    shown = capsys.readouterr().out
    numbers = re.findall(r"^record (\d+): label none, 14 pieces", shown, re.M)
    assert numbers == [str(number) for number in range(printed)]
    assert f"| records | {max(4, printed)} |" in shown
    # Half of them have round(0.15 * 14) = 2 of 14 pieces masked.
    assert f"| masked, of all pieces | {1 / 14:.4f} |" in shown


def test_records_without_pairs_are_shown(tiny_tokenizer, tmp_path, capsys):
    """The paper's objective needs two sentences; it is the default, not a wish."""
    (tmp_path / "a.txt").write_text("A sentence alone.\n\nAnother one.")
    folder = str(tmp_path / "r")
    build(BuildOptions(f"text:{tmp_path}/a.txt", tiny_tokenizer, folder, 32))
    show_records(ShowRecordsOptions(folder, num=1))
    assert "no pair" in capsys.readouterr().out
    with pytest.raises(InputError, match="sop"):
        show_records(ShowRecordsOptions(folder, objective="sop"))


def test_the_folder_is_named_with_or_without_its_flag():
    for given in (["folder"], ["--data=folder"]):
        options = commands.parse(ShowRecordsOptions, ["show", *given, "--num=1"], "", "", "data")
        assert (options.data, options.num) == ("folder", 1)
    with pytest.raises(InputError, match="unexpected argument 'more'"):
        commands.parse(ShowRecordsOptions, ["show", "folder", "more"], "", "", "data")
    with pytest.raises(InputError, match="--data is required"):
        commands.parse(ShowRecordsOptions, ["show"], "", "", "data")


def test_mistakes(tiny_records, tmp_path: pathlib.Path):
    with pytest.raises(InputNotFoundError, match="no manifest.json"):
        show_records(ShowRecordsOptions(str(tmp_path)))
    with pytest.raises(InputError, match="--num must not be negative.*-1"):
        show_records(ShowRecordsOptions(tiny_records, num=-1))
    with pytest.raises(InputError, match="objective.pair.*'swap'"):
        show_records(ShowRecordsOptions(tiny_records, objective="swap"))


def test_an_id_beyond_the_vocabulary_is_named(tiny_records, tmp_path: pathlib.Path):
    records = Records.open(shutil.copytree(tiny_records, tmp_path / "copy").as_posix())
    ((path, _),) = records.shards()
    first, *others = (raw.numpy() for raw in tf.data.TFRecordDataset(path))
    example = tf.train.Example.FromString(first)
    pieces = example.features.feature["pieces"].bytes_list
    pieces.value[0] = b"\xff\xff" * (len(pieces.value[0]) // 2)
    write_records(path, [example.SerializeToString(), *others])
    words = (
        rf"copy': `\w+_ids` must be from 0 to {records.manifest.vocab_size - 1}\. Received: 65535"
    )
    with pytest.raises(InputError, match=words):
        show_records(ShowRecordsOptions(records.folder))
