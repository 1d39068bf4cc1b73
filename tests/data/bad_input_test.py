"""Tests that a mistake on the command line is one line and status 2, and leaves nothing behind."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from albert_tf.runtime import commands
from data.build import BuildOptions, build
from data.train_tokenizer import TrainTokenizerOptions, train_tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = {
    "build": (build, BuildOptions),
    "train_tokenizer": (train_tokenizer, TrainTokenizerOptions),
}


@pytest.fixture
def place(tmp_path, monkeypatch, tiny_tokenizer) -> pathlib.Path:
    """A working directory with a few corpora, good and bad, and a tokenizer."""
    (tmp_path / "good.txt").write_text("Ba de fi go. Ku la me ni.\n\nPo ru sa te. Du fo.\n" * 20)
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "latin.txt").write_bytes("Ba de fi. Café ku.".encode("latin-1"))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    (tmp_path / "tokenizer").symlink_to(tiny_tokenizer)
    (tmp_path / "nothing").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(monkeypatch, program: str, **flags: object) -> int:
    """The status of a command with good flags but for `flags`."""
    good = {"corpus": "text:good.txt", "output": "out"}
    good |= {"tokenizer": "tokenizer", "seq_length": 16} if program == "build" else {}
    argv = [f"--{name}={value}" for name, value in (good | flags).items() if value is not None]
    monkeypatch.setattr(sys, "argv", [f"data/{program}.py", *argv])
    with pytest.raises(SystemExit) as exit_info:
        commands.run(*PROGRAMS[program], __doc__)
    return exit_info.value.code


BOTH = {
    "empty corpus": ({"corpus": "text:empty.txt"}, ["--corpus", "text:empty.txt", "no sentence"]),
    "no match": (
        {"corpus": "text:nowhere/*.txt"},
        ["--corpus", "no file matches", "nowhere/*.txt", "working directory"],
    ),
    "not UTF-8": (
        {"corpus": "text:latin.txt"},
        ["--corpus", "latin.txt", "must be UTF-8", "0xe9 at offset 13", "--errors=replace"],
    ),
    "unknown kind": (
        {"corpus": "txt:good.txt"},
        ["--corpus", "KIND:WHERE", "one of text,"],
    ),
    "bucket corpus": ({"corpus": "text:gs://b/*.txt"}, ["--corpus", "gs://b/*.txt", "gcloud"]),
    "bucket output": ({"output": "gs://b/out"}, ["--output", "gs://b/out", "mounted"]),
    "bucket of TFDS": (
        {"corpus": "tfds:wiki40b/en", "data_dir": "gs://b"},
        ["--data_dir", "'gs://b'", "mounted"],
    ),
    "TFDS name": ({"corpus": "tfds:bad name!"}, ["--corpus=tfds:", "'bad name!'", "name/config"]),
    "no corpus": ({"corpus": None}, ["--corpus is required"]),
    "boundary": (
        {"document_boundary": "regex:("},
        ["--document_boundary", "regular expression", "regex:("],
    ),
    "errors": ({"errors": "ignore"}, ["--errors", "one of strict, replace", "ignore"]),
    "unwritable": ({"output": "good.txt/out"}, ["--output=good.txt/out", "cannot be written"]),
    "a file": ({"output": "good.txt"}, ["--output", "new or empty folder", "good.txt"]),
    "not empty": (
        {"output": "taken"},
        ["--output", "new or empty folder", "taken", "Name another"],
    ),
    "unknown flag": ({"colour": "red"}, ["colour", "--help"]),
}
ONE = {
    "train_tokenizer": {
        "large vocabulary": ({"vocab_size": 5000}, ["--vocab_size", "at most", "5000", "or less"]),
        "not a number": ({"vocab_size": "many"}, ["vocab_size", "many"]),
    },
    "build": {
        "short": ({"seq_length": 15}, ["--seq_length", "at least 16", "15"]),
        "tokenizer": ({"tokenizer": "nothing"}, ["tokenizer", "spiece.model", "nothing"]),
        "split": ({"split": "test"}, ["--split", "one of all, train, heldout", "test"]),
        "fraction": ({"heldout_fraction": 1.5}, ["--heldout_fraction", "in (0, 1)", "1.5"]),
        "dupe": ({"dupe_factor": 0}, ["--dupe_factor", "positive", "0"]),
        "layout": ({"layout": "wide"}, ["--layout", "one of compact, reference", "wide"]),
        "names": (
            {"layout": "reference", "feature_names": "mine"},
            ["--feature_names", "one of google, model_garden", "mine"],
        ),
        "masks in compact": (
            {"max_predictions": 3},
            ["--max_predictions=3", "--layout=reference", "compact", "Leave it out"],
        ),
        "quirks in compact": ({"reference_quirks": "true"}, ["--reference_quirks=True", "compact"]),
        "rate": (
            {"layout": "reference", "masking_rate": 1.5},
            ["--masking_rate", "in (0, 1)", "1.5"],
        ),
        "slots": (
            {"layout": "reference", "max_predictions": 17},
            ["--max_predictions", "--seq_length", "17"],
        ),
        "ngram": ({"layout": "reference", "max_ngram": 0}, ["--max_ngram", "positive", "0"]),
        "workers": ({"num_workers": -1}, ["--num_workers", "not be negative", "-1"]),
        "empty split": (
            {"split": "heldout", "heldout_fraction": 1e-9},
            ["--corpus", "--split=heldout", "--heldout_fraction"],
        ),
    },
}
CASES = [
    pytest.param(program, *case, id=f"{program}-{name}")
    for program, own in ONE.items()
    for name, case in (BOTH | own).items()
]


@pytest.mark.parametrize(("program", "flags", "parts"), CASES)
def test_a_mistake_is_one_line(place, monkeypatch, capsys, program, flags, parts):
    before = sorted(place.rglob("*"))
    assert run(monkeypatch, program, **flags) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and ": error: " in lines[0]
    for part in parts:
        assert part in lines[0]
    assert sorted(place.rglob("*")) == before


def test_a_process_of_its_own_says_it_in_one_line(place):
    command = [sys.executable, "-m", "data.build", "--corpus=text:none", "--tokenizer=tokenizer"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, "--output=out"], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("data.build: error: --corpus: no file matches 'none'")


def test_a_process_of_its_own_builds_the_same_bytes(place, monkeypatch, capsys):
    """Another process has other hash seeds and addresses; --set sets what a flag would."""
    command = [sys.executable, "-m", "data.build", "--corpus=text:good.txt", "--output=theirs"]
    flags = ["--tokenizer=tokenizer", "--set", "seq_length=16"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, *flags], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert "21 documents, 80 sentences" in done.stdout
    assert run(monkeypatch, "build", output="ours") == 0
    ours, theirs = (
        {p.name: p.read_bytes() for p in (place / name).glob("*.*")} for name in ("ours", "theirs")
    )
    assert ours == theirs and set(ours) == {"manifest.json", "records-00000-of-00001.tfrecord"}
    assert json.loads(ours["manifest.json"])["seq_length"] == 16
