"""Raw text to a served model: every step in turn, on docstrings, at the smallest scale."""

import os
import pathlib
import random
import re
import subprocess
import sys

import pytest

from albert_tf.export import __main__ as export
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.predictor import load_predictor
from examples.demo import WITHOUT_OUR_CODE
from finetuning import train as finetune
from pretraining import train as pretrain

pytestmark = pytest.mark.slow  # tests/readme_test.py makes the same journey by its commands
ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tiny_records: str, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A pretraining run with all its exports."""
    folder = tmp_path_factory.mktemp("journey")
    steps = ("loop.steps=20", "loop.checkpoint_every=10")
    pretrain.main(pretrain.TrainOptions(tiny_records, str(folder / "run"), "smoke", set=steps))
    for kind in ("encoder", "preprocessing", "fill_mask"):
        export.main(export.ExportOptions(str(folder / "run"), str(folder / kind), kind))
    return folder


def ask(path: pathlib.Path, *texts: str) -> list[str]:
    """The lines that the stand-alone script prints, run where this project cannot be imported."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run([sys.executable, "-I", "-c", WITHOUT_OUR_CODE], cwd=path, check=True)
    done = subprocess.run(
        [sys.executable, "-I", str(ROOT / "examples" / "ask.py"), str(path), *texts],
        capture_output=True,
        text=True,
        env=environment,
        cwd=path,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_fill_mask_answers_without_the_project(folder: pathlib.Path):
    lines = ask(folder / "fill_mask" / "1", "the [MASK] of a [MASK]", "nothing to fill")
    assert lines[0] == "the [MASK] of a [MASK]"
    # Two masks, five guesses each with falling probabilities, as a row each.
    for row in lines[1:3]:
        chances = [float(chance) for chance in re.findall(r" (\d\.\d\d)(?:,|$)", row)]
        assert len(chances) == 5 and chances == sorted(chances, reverse=True)
    assert "nothing to fill" in lines


@pytest.fixture(scope="module")
def task_folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Texts that name fruit or tools: any model that reads at all can tell them apart."""
    rng, folder = random.Random(0), tmp_path_factory.mktemp("task")
    words = {
        "fruit": "apple pear plum cherry melon".split(),
        "tool": "hammer saw file drill".split(),
    }
    for name, count in (("train.tsv", 160), ("dev.tsv", 40)):
        rows = ["text\tlabel"]
        for _ in range(count):
            label = rng.choice(sorted(words))
            rows.append(f"{' '.join(rng.choices(words[label], k=5))}\t{label}")
        (folder / name).write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("init", ["run", "encoder/1"])
def test_fine_tuning_from_a_run_and_through_the_hub(
    folder: pathlib.Path, task_folder: pathlib.Path, init: str
):
    run = folder / f"tuned-{init.replace('/', '-')}"
    chosen = (
        "training.epochs=12",
        "training.batch_size=8",
        "training.learning_rate=0.001",
        "task.seq_length=24",
    )
    finetune.main(
        finetune.FinetuneOptions(
            "text_classification", str(run), str(task_folder), init=str(folder / init), set=chosen
        )
    )
    result = RunDir(str(run)).result()
    assert result["accuracy"] > 0.9 > result["baseline"]
    # One kind of run, wherever the encoder came from.
    predictor = load_predictor(str(run))
    assert predictor.task.labels == ("fruit", "tool")
    assert predictor([TextExample("pear apple melon plum")])[0]["label"] == "fruit"
    export.main(export.ExportOptions(str(run), str(run / "export")))
    if init == "encoder/1":
        answer = ask(run / "export" / "1", "pear apple melon plum")
        assert answer[1].split()[0] == "fruit"
