"""A user's mistake gets one line that names it, status 2, no traceback, and leaves nothing.

Of each command some; the other messages are tested beside the modules that raise them.
"""

import os
import pathlib
import shutil
import sys
from collections.abc import Callable

import pytest

from albert_tf.convert import __main__ as convert
from albert_tf.export import __main__ as export
from albert_tf.runtime import commands
from albert_tf.runtime.files import outputs
from albert_tf.runtime.run_dir import RunDir
from finetuning import train as finetune
from pretraining import evaluate, similarity, train

MAINS = {
    "train": (train.main, train.TrainOptions),
    "evaluate": (evaluate.main, evaluate.EvaluateOptions),
    "export": (export.main, export.ExportOptions),
    "finetune": (finetune.main, finetune.FinetuneOptions),
    "convert": (convert.main, convert.ConvertOptions),
    "similarity": (similarity.main, similarity.SimilarityOptions),
}
FAST = ["--set=loop.steps=2", "--set=optimizer.warmup_steps=1", "--experiment=smoke"]


@pytest.fixture(scope="module")
def world(
    tiny_records: str,
    smoke_run: str,
    exports: pathlib.Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, str]:
    """A finished pretraining run, exports of another and a table of reviews."""
    folder = tmp_path_factory.mktemp("world")
    run = str(folder / "run")
    shutil.copytree(smoke_run, run)
    shutil.copytree(exports, folder, dirs_exist_ok=True)
    (folder / "reviews").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (folder / "reviews" / name).write_text("text\tlabel\na\tx\nb\ty\n", encoding="utf-8")
    (folder / "foreign").mkdir()
    (folder / "foreign" / "thesis.tex").write_text("years of work", encoding="utf-8")
    for name, data in (("run", "torn"), ("encoder/1", "torn_export")):
        shutil.copytree(folder / name, folder / data)
        for weights in (folder / data).glob("*/*.data-00000-of-00001"):
            weights.write_bytes(weights.read_bytes()[:500])  # as if the copying had stopped
    return {"folder": str(folder), "records": tiny_records, "run": run}


CASES = {
    "no records": ("train", ["--data={folder}/nowhere", "--run_dir={new}"], ["manifest.json"]),
    "other values": ("train", ["--data={records}", "--run_dir={run}"], ["loop.steps", "60 != "]),
    "foreign folder": (
        "train",
        ["--data={records}", "--run_dir={folder}/foreign", *FAST],
        ["--run_dir", "foreign"],
    ),
    "under a file": (
        "train",
        ["--data={records}", "--run_dir={folder}/reviews/dev.tsv/run", *FAST],
        ["--run_dir", "dev.tsv"],
    ),
    "unknown experiment": (
        "train",
        ["--data={records}", "--run_dir={new}", "--experiment=smok"],
        ["smok", "smoke"],
    ),
    "negative warm-up": (
        "train",
        ["--data={records}", "--run_dir={new}", *FAST, "--set=optimizer.warmup_steps=-5"],
        ["warmup_steps", "-5"],
    ),
    "rate that is none": (
        "train",
        ["--data={records}", "--run_dir={new}", *FAST, "--set=optimizer.learning_rate=nan"],
        ["learning_rate", "nan"],
    ),
    "init of another shape": (
        "train",
        ["--data={records}", "--run_dir={new}", *FAST, "--init={run}", "--set=model.num_heads=4"],
        ["num_heads", "2 != 4"],
    ),
    "init without weights": (
        "train",
        ["--data={records}", "--run_dir={new}", *FAST, "--init={folder}/foreign"],
        ["config", "foreign"],
    ),
    "torn init": (
        "train",
        ["--data={records}", "--run_dir={new}", *FAST, "--init={folder}/torn"],
        ["torn/checkpoints", "Read less bytes"],
    ),
    "torn run": ("evaluate", ["--data={records}", "--run_dir={folder}/torn"], ["Read less bytes"]),
    "torn run to convert": ("convert", ["--from={folder}/torn", "--to={new}"], ["Read less bytes"]),
    "torn export": (
        "finetune",
        [
            "--task=text_classification",
            "--data_dir={folder}/reviews",
            "--init={folder}/torn_export",
            "--run_dir={new}",
        ],
        ["torn_export", "intact SavedModel"],
    ),
    "similarity to no folder": (
        "similarity",
        ["--run_dir={run}", "--data={records}", "--output={run}/config.json/s.png"],
        ["--output", "folder"],
    ),
    "similarity to no picture": (
        "similarity",
        ["--run_dir={run}", "--data={records}", "--output={folder}/s.foo"],
        ["--output", ".png"],
    ),
    "empty batch": (
        "evaluate",
        ["--data={records}", "--run_dir={run}", "--batch_size=0"],
        ["--batch_size", "0"],
    ),
    "existing version": (
        "export",
        ["--run_dir={run}", "--output={folder}/encoder"],
        ["--output", "--version=2"],
    ),
    "labels by hand": (
        "finetune",
        [
            "--task=text_classification",
            "--data_dir={folder}/reviews",
            "--init={run}",
            "--run_dir={new}",
            "--set=task.labels=y,x",
        ],
        ["task.labels"],
    ),
}


def outcome(
    monkeypatch: pytest.MonkeyPatch, program: Callable, options: type, arguments: list[str]
) -> int:
    monkeypatch.setattr(sys, "argv", ["program", *arguments])
    with pytest.raises(SystemExit) as ended:
        commands.run(program, options, "")
    return ended.value.code


@pytest.mark.parametrize("case", CASES)
def test_one_line_and_nothing_left(
    case: str, world: dict[str, str], tmp_path: pathlib.Path, monkeypatch, capsys
):
    name, arguments, words = CASES[case]
    new = tmp_path / "new"
    given = [a.format(**world, new=new) if a.startswith("--") else a for a in arguments]
    before = sorted(os.walk(world["folder"]))
    assert outcome(monkeypatch, *MAINS[name], given) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    lines = [line for line in lines if "error:" in line or "Traceback" in line]
    assert len(lines) == 1 and "Traceback" not in lines[0]
    assert all(word in lines[0] for word in words), lines[0]
    assert not new.exists()
    assert sorted(os.walk(world["folder"])) == before


def test_evaluating_a_fine_tuned_run_is_refused(
    world: dict[str, str], tmp_path: pathlib.Path, monkeypatch, capsys
):
    tuned = str(tmp_path / "tuned")
    shutil.copytree(world["run"], tuned)
    config = RunDir(tuned).config() | {"task": {"kind": "classifier"}}
    outputs.write_json(RunDir(tuned).config_path, config)
    arguments = [f"--run_dir={tuned}", f"--data={world['records']}"]
    assert outcome(monkeypatch, *MAINS["evaluate"], arguments) == 2
    assert "was fine-tuned for classifier and has no pretraining heads" in capsys.readouterr().err
