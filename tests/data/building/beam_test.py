"""Tests that Apache Beam writes the bytes of the local runner and tells mistakes as it does."""

import dataclasses
import gzip
import json
import os
import pathlib
import random
import sys

import pytest

from albert_tf.runtime.errors import InputError
from data import build as build_module
from data.build import BuildOptions, build
from data.building.workers import DEFAULT_SIZES, Sizes
from data.corpora.corpus import NumberedCorpus
from data.records.manifest import Manifest


@pytest.fixture(scope="module")
def texts(sentence_maker, tmp_path_factory) -> pathlib.Path:
    """Three files of 12 documents, some of them gzip, and one of blank lines; text and jsonl."""
    rng = random.Random(3)
    folder = tmp_path_factory.mktemp("texts")
    for name in "abd":
        documents = [
            [sentence_maker(rng, rng.randint(2, 6)) for _ in range(rng.randint(1, 40))]
            for _ in range(12)
        ]
        text = "\n\n".join("\n".join(sentences) for sentences in documents)
        (folder / f"{name}.txt").write_text(text)
        lines = (json.dumps({"text": "\n".join(sentences)}) for sentences in documents)
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    (folder / "b.txt.gz").write_bytes(gzip.compress((folder / "b.txt").read_bytes()))
    (folder / "b.txt").unlink()
    (folder / "c.txt").write_text("\n\n")
    return folder


@pytest.fixture
def options(texts, tiny_tokenizer, tmp_path) -> BuildOptions:
    corpus = f"text:{texts}/*.txt*"
    return BuildOptions(corpus, tiny_tokenizer, str(tmp_path / "local"), seq_length=16)


def content(folder: str | os.PathLike) -> dict[str, bytes]:
    root = pathlib.Path(folder)
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def build_both(
    options: BuildOptions, beam_args: str = "", sizes: Sizes = DEFAULT_SIZES
) -> dict[str, bytes]:
    """Builds locally and by Beam, requires the same files with the same bytes and returns them."""
    pytest.importorskip("apache_beam")
    build(options, sizes)
    theirs = dataclasses.replace(
        options, output=options.output + "_beam", runner="beam", beam_args=beam_args
    )
    build(theirs, sizes)
    local, beam = content(options.output), content(theirs.output)
    assert local.keys() == beam.keys() and local == beam
    return beam


def test_the_bytes_are_the_local_runners(options):
    """With so many shards that some are empty."""
    files = build_both(options, sizes=Sizes(shard_bytes=50))
    manifest = Manifest.read(options.output)
    assert manifest.counts.documents == 36 and manifest.counts.sequences > 400
    assert sum(manifest.shards) == manifest.counts.sequences and min(manifest.shards) == 0
    shards = [files[name] for name in sorted(files) if name.startswith("records-")]
    assert [not content for content in shards] == [size == 0 for size in manifest.shards]


@pytest.mark.parametrize(
    "changes",
    [
        {"layout": "reference", "dupe_factor": 2, "seed": 7},
        {"split": "heldout", "heldout_fraction": 0.5},
    ],
    ids=["reference", "heldout"],
)
def test_layouts_and_splits_too(options, texts, changes):
    assert build_both(dataclasses.replace(options, corpus=f"jsonl:{texts}/*.jsonl.gz", **changes))


@pytest.mark.slow
def test_a_corpus_that_is_read_as_one(options):
    assert build_both(dataclasses.replace(options, corpus="python_docs:json,email", seq_length=64))


@pytest.mark.slow
def test_processes_elsewhere_write_the_same(options, texts, monkeypatch):
    """Two worker processes get everything by serialization; the corpus is named relatively."""
    monkeypatch.chdir(texts.parent)
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(build_module.__file__).parents[1]))
    relative = dataclasses.replace(options, corpus=f"text:{texts.name}/*.txt*")
    beam_args = "--direct_running_mode=multi_processing --direct_num_workers=2"
    build_both(relative, beam_args, Sizes(shard_bytes=5000))
    assert len(Manifest.read(options.output).shards) > 2


def test_numbers_are_of_the_file_and_of_the_document_in_it(texts):
    whole = NumberedCorpus(f"text:{texts}/*.txt*", "blank_line", errors="strict", data_dir=None)
    assert [len(files) for _, files in whole.parts()] == [1, 1, 1, 1]
    documents = list(whole.documents(whole.parts()))
    expected = [(part << 32) + number for part in (0, 1, 3) for number in range(12)]  # 2 is empty
    assert [number for number, _ in documents] == expected
    separately = [
        document for part in reversed(whole.parts()) for document in whole.documents([part])
    ]
    assert sorted(separately, key=lambda pair: pair[0]) == documents


def test_a_mistake_in_a_worker_is_told_as_by_the_local_runner(options, tmp_path):
    pytest.importorskip("apache_beam")
    (tmp_path / "a.txt").write_bytes(b"Good text.\ncaf\xe9.\n")
    messages = []
    for runner in ("local", "beam"):
        bad = dataclasses.replace(options, corpus=f"text:{tmp_path}/a.txt", runner=runner)
        with pytest.raises(InputError, match="0xe9 at offset 14.*--errors=replace") as raised:
            build(bad)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runner": "spark"}, "--runner must be one of local, beam. Received: 'spark'"),
        ({"beam_args": "--runner=X"}, "--beam_args is only for --runner=beam"),
        (
            {"runner": "beam", "layout": "reference", "reference_quirks": True},
            "--reference_quirks is only for --runner=local",
        ),
    ],
)
def test_options_that_conflict_are_refused(options, changes, message):
    if changes.get("runner") == "beam":
        pytest.importorskip("apache_beam")
    with pytest.raises(InputError, match=message):
        build(dataclasses.replace(options, **changes))


def test_without_beam_the_extra_is_named(options, monkeypatch):
    for module in ("apache_beam", "apache_beam.options.pipeline_options"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=r"pip install -e '\.\[beam\]'"):
        build(dataclasses.replace(options, runner="beam"))
