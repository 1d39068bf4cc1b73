"""Tests of a build's output: the same bytes each time, counted, globally shuffled, all or none."""

import collections
import dataclasses
import errno
import json
import os
import pathlib
import random

import pytest
import tensorflow as tf

from albert_tf.runtime.errors import InputError, InputNotFoundError, MachineError
from albert_tf.runtime.files import outputs
from albert_tf.runtime.files.text_files import TextFile
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from data import build as build_module
from data.build import BuildOptions, build
from data.building import local_runner, shuffle, workers
from data.building.workers import Sizes
from data.corpora.corpus import corpus_bytes, read_documents
from data.objectives.masking import MaskingConfig
from data.objectives.pair_objective import NoPairs
from data.pipeline.batches import Records, evaluation_batches
from data.records import sketch
from data.records.manifest import MANIFEST, Counts, Manifest


@pytest.fixture(scope="module")
def corpus(sentence_maker, tmp_path_factory) -> str:
    """40 documents of about 50 sequences each, for sequences of 16."""
    rng = random.Random(2)
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    with open(path, "w") as file:
        for _ in range(40):
            text = "\n".join(sentence_maker(rng, rng.randint(2, 4)) for _ in range(110))
            file.write(json.dumps({"text": text}) + "\n")
    return f"jsonl:{path}"


@pytest.fixture
def options(corpus, tiny_tokenizer, tmp_path) -> BuildOptions:
    out = str(tmp_path / "out")
    return BuildOptions(corpus, tiny_tokenizer, out, seq_length=16, num_workers=1)


def content(folder: str | os.PathLike) -> dict[str, bytes]:
    root = pathlib.Path(folder)
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def parsed(folder: str) -> list[dict]:
    """The records in the order of the files, without padding."""
    records = Records.open(folder)
    rows = []
    for path, size in records.shards():
        raw = tf.data.TFRecordDataset(path).batch(size).get_single_element()
        values = {k: v.numpy() for k, v in records.manifest.schema.parse(raw).items()}
        for row in range(size):
            length = int(values["pieces_length"][row])
            rows.append(
                {
                    "pieces": tuple(values["pieces"][row, :length].tolist()),
                    "first_length": int(values["first_length"][row]),
                    "document": int(values["document"][row]),
                }
            )
    return rows


def few_documents(tmp_path, texts: list[str]) -> str:
    path = tmp_path / "few.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    return f"jsonl:{path}"


def test_any_number_of_workers_gives_the_same_bytes(options, tmp_path):
    """Many small batches, so that the workers finish in any order; several shards."""
    sizes = Sizes(shard_bytes=30_000, worker_bytes=1, batch_characters=5000)
    folders = [str(tmp_path / name) for name in ("one", "again", "two")]
    for folder, count in zip(folders, (1, 1, 2), strict=True):
        build(dataclasses.replace(options, output=folder, num_workers=count), sizes)
    one, again, two = map(content, folders)
    assert one == again == two
    assert len(Manifest.read(folders[0]).shards) > 1
    build(dataclasses.replace(options, output=str(tmp_path / "seed"), seed=1), sizes)
    assert content(tmp_path / "seed") != one


def test_batches_of_documents_do_not_show(options, tmp_path):
    build(options)
    single = dataclasses.replace(options, output=str(tmp_path / "single"))
    build(single, Sizes(batch_characters=1))
    assert content(options.output) == content(tmp_path / "single")


def test_little_text_starts_no_process():
    mebibyte = 2**20
    assert workers.useful_workers(8, mebibyte) == 1
    assert workers.useful_workers(8, 5 * mebibyte) == 3
    assert workers.useful_workers(8, 500 * mebibyte) == 8


def test_a_process_starts_for_each_core_that_may_be_used(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 9}, raising=False)
    assert workers.useful_workers(0, 2**40) == 3


@pytest.mark.parametrize("shard_bytes", [10**9, 30_000, 3_000])
def test_records_are_shuffled_globally(options, shard_bytes):
    """Neighbours, and pairs within a batch, share a document as often as by chance.

    By chance: the share of all pairs of records that are of one document, about 1 in 40. The
    counts are sums of rare, nearly independent events: five standard deviations are 5 sqrt(mean).
    In document order nearly all neighbours would share one.
    """
    build(options, Sizes(shard_bytes=shard_bytes))
    documents = [record["document"] for record in parsed(options.output)]
    count = len(documents)
    assert count > 1500 and len(set(documents)) == 40
    sizes = collections.Counter(documents).values()
    chance = sum(n * (n - 1) for n in sizes) / (count * (count - 1))
    assert 0.024 < chance < 0.027

    neighbours = sum(a == b for a, b in zip(documents[:-1], documents[1:], strict=True))
    expected = chance * (count - 1)
    assert abs(neighbours - expected) < 5 * expected**0.5

    batches = [documents[at : at + 32] for at in range(0, count - 31, 32)]
    together = sum(n * (n - 1) // 2 for b in batches for n in collections.Counter(b).values())
    expected = chance * len(batches) * 32 * 31 / 2
    assert abs(together - expected) < 5 * expected**0.5

    # Nor does the place in the file tell the place in the corpus.
    mean_document = sum(documents[: count // 2]) / (count // 2)
    assert abs(mean_document - 19.5) < 5 * 11.5 / (count // 2) ** 0.5


def test_shards_have_about_the_same_size(options):
    build(options, Sizes(shard_bytes=12_000))
    shards = Manifest.read(options.output).shards
    mean = sum(shards) / len(shards)
    assert len(shards) > 5
    assert all(abs(size - mean) < 5 * mean**0.5 for size in shards)


def test_train_and_heldout_are_disjoint_and_together_everything(options, tmp_path):
    parts = {}
    for split in ("all", "train", "heldout"):
        out = str(tmp_path / split)
        build(dataclasses.replace(options, output=out, split=split, heldout_fraction=0.3))
        parts[split] = {(r["document"], r["pieces"]) for r in parsed(out)}
    assert parts["train"] | parts["heldout"] == parts["all"]
    train, heldout = ({number for number, _ in parts[s]} for s in ("train", "heldout"))
    assert not train & heldout and train | heldout == set(range(40))
    assert 3 <= len(heldout) <= 21  # 12 expected, three standard deviations are 8.7
    manifests = {split: Manifest.read(str(tmp_path / split)) for split in parts}
    counts = [manifests[split].counts.documents for split in ("train", "heldout")]
    assert counts == [len(train), len(heldout)]
    sketches = {split: sketch.from_text(each.sketch) for split, each in manifests.items()}
    assert sketch.merged(sketches["train"], sketches["heldout"]) == sketches["all"]
    assert len(sketches["all"]) == 40 and len(sketches["heldout"]) == len(heldout)


def test_the_manifest_counts_right(tiny_tokenizer, tmp_path):
    """Three documents; with this seed no target is short, so each document is one sequence."""
    tokenizer = load_tokenizer(tiny_tokenizer)
    texts = ["Ba de fi.\nGo ku.\nLa me ni.\nPo ru.", "Single sentence only.", "Sa te.\nFi go ku."]
    pieces = [[tokenizer.encode(line) for line in text.split("\n")] for text in texts]
    sizes = [[len(ids) for ids in document] for document in pieces]
    assert all(sum(document) <= 61 for document in sizes)  # each document is one sequence of 64
    out = str(tmp_path / "out")
    corpus = few_documents(tmp_path, texts)
    build(BuildOptions(corpus, tiny_tokenizer, out, seq_length=64, num_workers=1))
    manifest = Manifest.read(out)
    assert manifest.counts == Counts(
        documents=3,
        single_sentence_documents=1,
        sentences=7,
        sequences=3,
        sequences_without_pair=1,
        pieces=sum(map(sum, sizes)),
        pieces_lost=0,
        text_bytes=sum(len(text.replace("\n", "")) for text in texts),
        unknown_pieces=sum(ids.count(tokenizer.special.unk) for d in pieces for ids in d),
    )
    assert manifest.num_records == 3 and manifest.seq_length == 64
    assert manifest.vocab_size == tokenizer.vocab_size == 200
    assert manifest.special_ids == (0, 1, 2, 3, 4)
    assert manifest.tokenizer_fingerprint == tokenizer.fingerprint
    assert load_tokenizer(out).fingerprint == tokenizer.fingerprint
    records = sorted(parsed(out), key=lambda record: record["document"])
    assert [r["pieces"] for r in records] == [tuple(sum(document, [])) for document in pieces]
    for record, document in zip(records, sizes, strict=True):
        cuts = [sum(document[:n]) for n in range(1, max(2, len(document)))]
        assert record["first_length"] in cuts


def test_lost_pieces_and_words_are_right(options):
    build(options)
    manifest, records = Manifest.read(options.output), parsed(options.output)
    counts = manifest.counts
    assert counts.sequences == manifest.num_records == len(records)
    assert counts.pieces == sum(len(record["pieces"]) for record in records)
    assert counts.sequences_without_pair == sum(
        record["first_length"] == len(record["pieces"]) for record in records
    )
    tokenizer = load_tokenizer(options.tokenizer)
    with open(options.corpus.removeprefix("jsonl:")) as file:
        lines = [line for row in file for line in json.loads(row)["text"].split("\n")]
    assert counts.sentences == len(lines) == 40 * 110
    assert counts.pieces + counts.pieces_lost == sum(map(len, tokenizer.encode_batch(lines)))
    assert all(2 <= len(record["pieces"]) <= 13 for record in records[:100])


def test_word_starts_are_the_tokenizers(options):
    """With every word masked whole: no slot of a batch cuts a word."""
    build(options)
    is_start = load_tokenizer(options.tokenizer).is_word_start
    records, masking = Records.open(options.output), MaskingConfig(rate=0.4, max_ngram=1)
    batches = evaluation_batches(records, NoPairs(), masking, 256)
    for batch in batches.take(2).as_numpy_iterator():
        ids = batch["input_word_ids"].copy()
        for row in range(256):
            used = int(batch["masked_lm_weights"][row].sum())
            chosen = batch["masked_lm_positions"][row, :used]
            ids[row, chosen] = batch["masked_lm_ids"][row, :used]
            special = set((ids[row] <= 3).nonzero()[0].tolist())  # [CLS], [SEP], <pad>
            for position in chosen.tolist():
                begins = is_start[ids[row, position]] or position - 1 in special
                assert begins or position - 1 in chosen
                after = position + 1
                ends = after in special or after == 16 or is_start[ids[row, after]]
                assert ends or after in chosen


def test_dupe_factor_cuts_each_document_anew(options):
    build(dataclasses.replace(options, dupe_factor=2))
    by_document = collections.Counter(record["document"] for record in parsed(options.output))
    assert all(80 < count for count in by_document.values())
    records = [record["pieces"] for record in parsed(options.output)]
    assert len(set(records)) > 0.6 * len(records)  # most are cut elsewhere the second time


def test_a_complete_build_is_kept_and_another_one_refused(options, capsys):
    build(options)
    before = {p: p.stat().st_mtime_ns for p in pathlib.Path(options.output).rglob("*")}
    build(dataclasses.replace(options, num_workers=2))
    assert "already complete" in capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in pathlib.Path(options.output).rglob("*")} == before
    with pytest.raises(InputError, match=r"--output=.* other options \(seq_length: 16 != 32\)"):
        build(dataclasses.replace(options, seq_length=32))
    with pytest.raises(InputError, match=r"seed: 0 != 5; split: 'all' != 'train'"):
        build(dataclasses.replace(options, seed=5, split="train"))
    assert {p: p.stat().st_mtime_ns for p in pathlib.Path(options.output).rglob("*")} == before


def test_options_that_leave_the_bytes_alone_may_change(options, capsys, tmp_path):
    """Where the corpus lies, how its path is spelled, and a fraction of no split."""
    source = pathlib.Path(options.corpus.removeprefix("jsonl:"))
    moved = tmp_path / "moved" / source.name
    moved.parent.mkdir()
    moved.write_bytes(source.read_bytes())
    build(options)
    for corpus in (moved, f"{source.parent}/./*.jsonl"):
        build(dataclasses.replace(options, corpus=f"jsonl:{corpus}", heldout_fraction=0.3))
        assert "already complete" in capsys.readouterr().out
    train = dataclasses.replace(options, output=str(tmp_path / "train"), split="train")
    build(train)
    with pytest.raises(InputError, match=r"other options \(heldout_fraction: 0.05 != 0.3\)"):
        build(dataclasses.replace(train, heldout_fraction=0.3))
    with pytest.raises(InputError, match=r"other options \(split: 'train' != 'all'\)"):
        build(dataclasses.replace(train, split="all", heldout_fraction=0.3))


def test_another_content_of_the_corpus_is_refused(tiny_tokenizer, tmp_path):
    corpus, out = few_documents(tmp_path, ["Ba de fi. Go ku."]), str(tmp_path / "out")
    options = BuildOptions(corpus, tiny_tokenizer, out, seq_length=16, num_workers=1)
    build(options)
    few_documents(tmp_path, ["Ba de fi. La me."])
    with pytest.raises(InputError, match=r"other options \(corpus content: '\w+' != '\w+'\)"):
        build(options)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("notes.txt", "--output must name a new or empty folder"),
        (MANIFEST, "must be a manifest of"),
    ],
)
def test_foreign_content_is_refused_and_left_alone(options, name, message):
    folder = pathlib.Path(options.output)
    folder.mkdir()
    (folder / name).write_text('{"mine": 1}')
    with pytest.raises(InputError, match=message):
        build(options)
    assert content(folder) == {name: b'{"mine": 1}'}


def test_a_broken_build_is_not_taken_for_complete(options):
    build(options)
    (shard,) = pathlib.Path(options.output).glob("*.tfrecord")
    shard.unlink()
    with pytest.raises(InputNotFoundError, match=r"records-00000-of-00001.*Remove"):
        build(options)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_failing_build_leaves_nothing_behind(options, corpus, tmp_path, num_workers):
    """A byte that is not UTF-8 after 30 good documents, when records are being spilled."""
    sizes = Sizes(worker_bytes=1, batch_characters=5000)
    lines = pathlib.Path(corpus.removeprefix("jsonl:")).read_bytes().split(b"\n")
    (tmp_path / "bad").mkdir()
    bad = tmp_path / "bad" / "bad.jsonl"
    bad.write_bytes(b"\n".join([*lines[:30], b'{"text": "\xff"}', *lines[30:]]))
    change = {"corpus": f"jsonl:{bad}", "num_workers": num_workers}
    with pytest.raises(InputError, match="must be UTF-8"):
        build(dataclasses.replace(options, **change), sizes)
    assert [path.name for path in tmp_path.iterdir()] == ["bad"]
    build(dataclasses.replace(options, **change | {"errors": "replace", "num_workers": 1}), sizes)
    assert Manifest.read(options.output).counts.documents == 41


def test_leftovers_of_a_killed_build_are_cleared(options):
    left = pathlib.Path(options.output + ".incomplete")
    left.mkdir()
    (left / outputs.MARK).touch()
    (left / "00000.spill").write_bytes(b"half")
    build(options)
    assert not left.exists()
    assert not any(name.endswith("spill") for name in content(options.output))


def test_a_dry_run_writes_nothing(options, capsys, tmp_path):
    build(dataclasses.replace(options, dry_run=True))
    assert '"seq_length": 16' in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


# 14 batches of three documents or less, a mark after each two, and several shards.
MANY_SHARDS = Sizes(shard_bytes=30_000, batch_characters=5000, batches_per_mark=2)


class Stop(KeyboardInterrupt):
    """An interruption."""


PLACES = {
    "before a mark": ((shuffle.Spill, "add"), 1),
    "after a mark": ((shuffle.Spill, "add"), 6),
    "between shards": ((shuffle.ShardWriter, "__call__"), 2),
    "after the shards": ((build_module.Manifest, "write"), 0),
}


def stop_at(monkeypatch, place: tuple, count: int, error: BaseException) -> None:
    """Make a method raise after `count` calls."""
    real, calls = getattr(*place), []

    def stop_after(*args: object) -> object:
        calls.append(args)
        if len(calls) > count:
            raise error
        return real(*args)

    monkeypatch.setattr(*place, stop_after)


def count_calls(monkeypatch, place: tuple) -> list:
    """A list that grows with each call of a method."""
    real, calls = getattr(*place), []
    monkeypatch.setattr(*place, lambda *args: calls.append(args) or real(*args))
    return calls


@pytest.mark.parametrize("layout", ["compact", "reference"])
@pytest.mark.parametrize("when", PLACES)
def test_an_interrupted_build_continues(options, tmp_path, monkeypatch, layout, when):
    """To the same bytes; what is before the last mark and what has a name is not done again."""
    options = dataclasses.replace(options, layout=layout)
    build(dataclasses.replace(options, output=str(tmp_path / "whole")), MANY_SHARDS)
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stop_at(patch, *PLACES[when], Stop())
        build(options, MANY_SHARDS)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.incomplete", "whole"]
    added = count_calls(monkeypatch, (shuffle.Spill, "add"))
    written = count_calls(monkeypatch, (shuffle.ShardWriter, "__call__"))
    build(options, MANY_SHARDS)
    assert content(options.output) == content(tmp_path / "whole")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "whole"]
    shards = len(Manifest.read(options.output).shards)
    expected = {
        "before a mark": (14, shards),
        "after a mark": (14 - 6, shards),
        "between shards": (0, shards - 2),
        "after the shards": (0, 0),
    }
    assert (len(added), len(written)) == expected[when]


@pytest.mark.parametrize(
    "place", [(shuffle.Spill, "sync"), (Tokenizer, "save"), (Manifest, "write")]
)
def test_a_full_disk_is_one_line_and_the_rerun_continues(options, tmp_path, monkeypatch, place):
    with (
        monkeypatch.context() as patch,
        pytest.raises(MachineError, match="No space left on device. Free some space.*same command"),
    ):
        stop_at(patch, place, 0, OSError(errno.ENOSPC, "No space left on device"))
        build(options)
    assert not pathlib.Path(options.output).exists()
    before = {p.name: p.stat().st_ino for p in tmp_path.glob("out.incomplete/*.tfrecord")}
    assert bool(before) == (place[0] != shuffle.Spill)
    build(options)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert {
        p.name: p.stat().st_ino for p in tmp_path.glob("out/*.tfrecord")
    }.items() >= before.items()


@pytest.mark.parametrize("torn", ["", ".json"])
def test_work_is_redone_if_a_power_cut_emptied_its_mark(options, tmp_path, monkeypatch, torn):
    """The identity, or how far the build came."""
    build(dataclasses.replace(options, output=str(tmp_path / "whole")), MANY_SHARDS)
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stop_at(patch, *PLACES["between shards"], Stop())
        build(options, MANY_SHARDS)
    emptied = tmp_path / "out.incomplete" / (outputs.MARK + torn)
    assert emptied.stat().st_size > 100
    emptied.write_bytes(b"")
    build(options, MANY_SHARDS)
    assert content(options.output) == content(tmp_path / "whole")


def test_leftovers_of_another_build_are_neither_continued_nor_lost(options, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Stop):
        stop_at(patch, *PLACES["after the shards"], Stop())
        build(options)
    left = content(tmp_path / "out.incomplete")
    with pytest.raises(InputError, match=r"left its work in .*out\.incomplete"):
        build(dataclasses.replace(options, seed=7))
    assert content(tmp_path / "out.incomplete") == left


def test_files_of_others_are_left_alone(options, tmp_path):
    left = tmp_path / "out.incomplete"
    left.mkdir()
    (left / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="needs the name.*out.incomplete"):
        build(options)
    assert content(left) == {"notes.txt": b"mine"}


def test_an_empty_split_is_reported_without_rereading(options, tmp_path, monkeypatch):
    """By the number of documents; of a corpus without any text, the text is what is missing."""
    opened = count_calls(monkeypatch, (TextFile, "_pieces"))
    heldout = dataclasses.replace(options, split="heldout", heldout_fraction=1e-9)
    with pytest.raises(InputError, match="none of the 40 documents.*Raise --heldout_fraction"):
        build(heldout)
    (tmp_path / "blank.txt").write_text(" \n\n \n")
    for split in ("all", "heldout"):
        with pytest.raises(InputError, match="--corpus must contain text.*no sentence"):
            build(dataclasses.replace(heldout, corpus=f"text:{tmp_path}/blank.txt", split=split))
    assert len(opened) == 2 * 3  # the beginning, and then the file
    assert [p.name for p in tmp_path.iterdir()] == ["blank.txt"]


def test_progress_counts_bytes_of_all_that_is_read(options, tmp_path):
    """Of documents left out too; the corpus's size on disk is known and hardly more."""
    bars = []

    class Noted(local_runner.Progress):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)
            bars.append(self)

    heldout = dataclasses.replace(options, split="heldout", heldout_fraction=0.3)
    stages = build_module.make_stages(heldout, load_tokenizer(options.tokenizer))
    documents = enumerate(read_documents(options.corpus))
    text_bytes = corpus_bytes(options.corpus)
    local_runner.run(str(tmp_path), *stages, documents, text_bytes, 1, 1, progress_of=Noted)
    reading, shards = bars
    assert reading.total == os.path.getsize(options.corpus.removeprefix("jsonl:"))
    with open(options.corpus.removeprefix("jsonl:")) as file:
        assert reading.done == sum(len(json.loads(row)["text"]) for row in file)
    assert 0.9 * reading.total < reading.done < reading.total
    assert shards.done == shards.total == 1


def test_replaced_bytes_are_counted(tiny_tokenizer, tmp_path, capsys):
    path = tmp_path / "latin.txt"
    path.write_bytes("Ba dé fi. Gö ku.".encode("latin-1"))
    out = str(tmp_path / "out")
    build(BuildOptions(f"text:{path}", tiny_tokenizer, out, seq_length=16, errors="replace"))
    assert Manifest.read(out).counts.replaced_characters == 2
    assert "2 characters are U+FFFD" in capsys.readouterr().out


def test_control_pieces_and_nul_in_a_text_stay_text(tiny_tokenizer, tmp_path):
    out = str(tmp_path / "out")
    text = "Ba [MASK] de [SEP] fi <pad>. Go\0ku [CLS] la."
    build(BuildOptions(few_documents(tmp_path, [text]), tiny_tokenizer, out, seq_length=128))
    (record,) = parsed(out)
    assert not {0, 2, 3, 4} & set(record["pieces"])
    unknown = load_tokenizer(tiny_tokenizer).special.unk
    assert record["pieces"].count(unknown) > 3  # brackets, which the vocabulary lacks


def notes(capsys, **options) -> str:
    build(BuildOptions(seq_length=16, num_workers=1, **options))
    return capsys.readouterr().out


def test_text_of_another_language_is_told(tmp_path, tiny_tokenizer, capsys):
    """All of the pieces of Chinese are unknown to an English vocabulary, and none of English."""
    (tmp_path / "zh.txt").write_text("红楼梦。满纸荒唐言。\n\n一把辛酸泪。都云作者痴。")
    (tmp_path / "en.txt").write_text("Ba de fi. Go ku la.\n\nLa me ni. Po ru sa.")
    common = {"tokenizer": tiny_tokenizer}
    notes_printed = notes(
        capsys, corpus=f"text:{tmp_path}/zh.txt", output=str(tmp_path / "zh"), **common
    )
    assert "of the pieces are unknown to the vocabulary: 4 of 。 (U+3002)" in notes_printed
    counts = Manifest.read(str(tmp_path / "zh")).counts
    assert 0.4 < (share := counts.unknown_pieces / counts.pieces) <= 1
    notes(
        capsys,
        corpus=f"text:{tmp_path}/zh.txt",
        output=str(out := tmp_path / "10"),
        **common,
        dupe_factor=10,
    )
    counts = Manifest.read(str(out)).counts
    assert counts.unknown_pieces / counts.pieces == pytest.approx(share)
    notes_printed = notes(
        capsys, corpus=f"text:{tmp_path}/en.txt", output=str(tmp_path / "en"), **common
    )
    assert "unknown" not in notes_printed and "one document" not in notes_printed


def test_a_corpus_of_one_document_is_told(tmp_path, tiny_tokenizer, capsys):
    (tmp_path / "all.txt").write_text("The file exists. It is open.\nA file is read. It is closed.")
    common = {"tokenizer": tiny_tokenizer, "corpus": f"text:{tmp_path}/all.txt"}
    assert "all of the text is one document" in notes(capsys, output=str(tmp_path / "a"), **common)
    assert "one document" not in notes(
        capsys, output=str(tmp_path / "b"), document_boundary="file", **common
    )
