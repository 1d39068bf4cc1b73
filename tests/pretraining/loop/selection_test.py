"""Evaluation during training: the best weights are kept, exported, and patience ends the run."""

import dataclasses
import os
import pathlib
import shutil
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.models.encoder import load_encoder
from albert_tf.runtime.errors import ConfigError, InputError, InputNotFoundError
from albert_tf.runtime.run_dir import RunDir
from data.records.manifest import Manifest
from pretraining import train
from pretraining.loop.config import EvaluationConfig, LoopConfig
from pretraining.loop.recipes import EXPERIMENTS
from pretraining.loop.selection import Selection
from pretraining.loop.train_step import TrainStep
from tests.pretraining.loop.stub_step import StubStep

FAST = (
    "loop.steps=8",
    "loop.steps_per_loop=2",
    "loop.checkpoint_every=4",
    "model.num_layers=1",
    "optimizer.warmup_steps=2",
    "model.max_positions=32",
)
INPUTS = {
    name: tf.ones([2, 8], tf.int32) for name in ("input_word_ids", "input_mask", "input_type_ids")
}


def scripted(*losses: float, signal_after: int = 0) -> Callable[..., Any]:
    """An evaluation that gives these losses, and SIGTERM during the one of that number."""
    left = iter(enumerate(losses, start=1))

    def evaluate() -> dict[str, Any]:
        number, loss = next(left)
        if number == signal_after:
            os.kill(os.getpid(), signal.SIGTERM)
        return {"loss/mlm": loss, "accuracy/mlm": 0.5, "verdict/sop": "no number"}

    return lambda heldout, config, strategy: lambda model: evaluate


def start(records: str, run: pathlib.Path, *assignments: str, evaluation: Any = None) -> RunDir:
    options = train.TrainOptions(
        records, str(run), "smoke", heldout=records, set=(*FAST, *assignments)
    )
    train.main(options, StubStep if evaluation else TrainStep, evaluation)
    return RunDir(str(run))


def test_the_best_is_kept_and_exported_and_patience_ends_the_run(
    masked_records: str, tmp_path: pathlib.Path, capsys
):
    run = start(
        masked_records,
        tmp_path / "run",
        "evaluation.every=2",
        "evaluation.patience=2",
        "loop.export=best",
        "loop.steps=20",
        evaluation=scripted(3.0, 2.0, 2.5, 2.0),
    )
    rows = run.metrics()
    assert [row["step"] for row in rows] == [2, 4, 6, 8]  # 2.0 again is not better
    assert [row["heldout/loss/mlm"] for row in rows] == [3.0, 2.0, 2.5, 2.0]
    assert "heldout/verdict/sop" not in rows[0] and run.result()["step"] == 8
    assert os.listdir(run.export_path) == ["4"]
    message = (
        "stopped early at step 8 of 20: heldout/loss/mlm did not improve in 2 evaluation(s); "
        "the best was 2 at step 4"
    )
    assert message in capsys.readouterr().out
    best, exported, last = (
        load_encoder(path)(INPUTS)["pooled_output"]
        for path in (run.best_path, os.path.join(run.export_path, "4"), run.path)
    )
    np.testing.assert_allclose(best, exported, atol=1e-6)
    assert not np.allclose(best, last, atol=1e-6)


def test_the_best_is_exported_only_with_a_checkpoint(tmp_path: pathlib.Path):
    """After SIGTERM between two, a resumed run has the exports of an uninterrupted one."""
    loop = LoopConfig(steps=40, steps_per_loop=10, checkpoint_every=20, export="best")
    evaluation = EvaluationConfig(every=10)
    config = dataclasses.replace(EXPERIMENTS["smoke"], loop=loop, evaluation=evaluation)
    selection = Selection(config, tf.Module(), None, RunDir(str(tmp_path)), RunDir(str(tmp_path)))
    selection.step = 10
    selection.export(30)
    with pytest.raises(InputNotFoundError, match="best"):  # there is nothing to export here
        selection.export(40)


def selection_of(folder: pathlib.Path, metric: str = "loss/mlm", export: str = "none") -> Selection:
    """Of a run of 50 steps, with a checkpoint and an evaluation every 10 of them."""
    loop = LoopConfig(steps=50, steps_per_loop=10, checkpoint_every=10, export=export)
    evaluation = EvaluationConfig(every=10, metric=metric, patience=2)
    config = dataclasses.replace(EXPERIMENTS["smoke"], loop=loop, evaluation=evaluation)
    model, run = tf.Module(), RunDir(str(folder))
    model.weight = tf.Variable(0.0)
    return Selection(config, model, None, run, run)


@pytest.mark.parametrize(
    ("metric", "better", "worse"), [("loss/mlm", 0.4, 0.6), ("accuracy/mlm", 0.6, 0.4)]
)
def test_a_loss_is_better_if_lower_and_an_accuracy_if_higher(
    tmp_path: pathlib.Path, metric: str, better: float, worse: float
):
    selection = selection_of(tmp_path, metric)
    assert [selection.add(*each) for each in ((10, 0.5), (20, worse), (30, better))] == [1, 0, 1]
    assert (selection.step, selection.value) == (30, better)


@pytest.mark.parametrize(
    ("export", "steps", "until_patience_ends"),
    [("none", [], []), ("last", [50], [30]), ("every:20", [20, 40, 50], [20, 30])],
)
def test_when_the_encoder_is_exported(
    tmp_path: pathlib.Path, export: str, steps: list[int], until_patience_ends: list[int]
):
    def tried(selection: Selection, last: int) -> list[int]:
        found = []
        for step in range(10, last + 1, 10):
            selection.stale = int(last < 50 and step == last) * 2
            try:
                selection.export(step)
            except InputNotFoundError:  # there is nothing to export here
                found.append(step)
        return found

    assert tried(selection_of(tmp_path, export=export), 50) == steps
    assert tried(selection_of(tmp_path, export=export), 30) == until_patience_ends


@pytest.mark.slow
def test_the_held_out_records_are_part_of_the_run(tiny_records: str, tmp_path: pathlib.Path):
    with pytest.raises(InputError, match="--heldout=FOLDER and --set evaluation.every=STEPS go"):
        start(tiny_records, tmp_path / "run")
    given = "evaluation.every=2", "loop.steps=2"
    run = start(tiny_records, tmp_path / "run", *given, evaluation=scripted(3.0))
    (described,), heldout = run.config()["records"], run.config()["heldout"]
    assert described == heldout | {"weight": 1.0} and heldout["build"]["split"] == "all"


@pytest.mark.slow
def test_real_evaluations_and_exports_on_the_way(tiny_records: str, tmp_path: pathlib.Path):
    run = start(tiny_records, tmp_path / "run", "evaluation.every=8", "loop.export=every:4")
    assert sorted(os.listdir(run.export_path)) == ["4", "8"]
    assert 5 < run.metrics()[-1]["heldout/loss/mlm"] < 7
    exported = load_encoder(os.path.join(run.export_path, "8"))(INPUTS)["pooled_output"]
    np.testing.assert_allclose(load_encoder(run.path)(INPUTS)["pooled_output"], exported, atol=1e-6)


def test_the_best_stays_over_a_restart(masked_records: str, tmp_path: pathlib.Path):
    """Best and stopped at 2, ended by patience at 6: the weights of 2 are in best/."""
    given = ("evaluation.every=2", "evaluation.patience=2", "loop.checkpoint_every=2")
    with pytest.raises(SystemExit):
        start(masked_records, tmp_path / "run", *given, evaluation=scripted(3.0, signal_after=1))
    run = start(masked_records, tmp_path / "run", *given, evaluation=scripted(4.0, 5.0))
    assert run.result()["step"] == 6
    assert tf.train.latest_checkpoint(os.path.join(run.best_path, "checkpoints")).endswith("ckpt-2")


@pytest.mark.slow
def test_patience_ends_a_run_whose_metric_is_no_number(
    masked_records: str, tmp_path: pathlib.Path, capsys
):
    given = ("evaluation.every=2", "evaluation.patience=1")
    start(masked_records, tmp_path / "run", *given, evaluation=scripted(float("nan")))
    assert "stopped early at step 2 of 8: heldout/loss/mlm was NaN" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        (["evaluation.every=3"], r"`evaluation.every` must be a multiple .* 3, 2"),
        (["loop.export=best"], "`loop.export=best` needs evaluations"),
        (["loop.export=every:6"], r"`loop.export` must be .* 'every:6', 4"),
        (["loop.export=always"], "`loop.export` must be"),
        (["evaluation.patience=1"], "needs evaluations"),
        (["optimizer.schedule_steps=9"], r"must not exceed `loop.steps`.* 9, 8"),
        (["optimizer.batch_scaling=root"], "none, sqrt, linear"),
    ],
)
def test_impossible_values_name_both_numbers(tiny_records, tmp_path, assignments, words):
    with pytest.raises(ConfigError, match=words):
        start(tiny_records, tmp_path / "run", *assignments)


def test_evaluations_need_records(tiny_records: str, tmp_path: pathlib.Path):
    options = train.TrainOptions(
        tiny_records, str(tmp_path / "run"), "smoke", set=(*FAST, "evaluation.every=2")
    )
    with pytest.raises(InputError, match="--heldout"):
        train.main(options)


def test_held_out_records_that_cannot_give_the_metric(tiny_records: str, tmp_path: pathlib.Path):
    """Random next sentences come from another document than the only one."""
    single = tmp_path / "single"
    shutil.copytree(tiny_records, single)
    manifest = Manifest.read(str(single))
    counts = dataclasses.replace(manifest.counts, documents=1)
    dataclasses.replace(manifest, counts=counts).write(str(single))
    given = ("objective.pair=nsp", "evaluation.every=2", "evaluation.metric=accuracy/nsp")
    options = train.TrainOptions(
        tiny_records,
        str(tmp_path / "run"),
        "smoke",
        heldout=str(single),
        dry_run=True,
        set=(*FAST, *given),
    )
    with pytest.raises(
        InputError, match="single cannot provide `evaluation.metric=accuracy/nsp`.*two"
    ):
        train.main(options)


def test_an_evaluation_that_lacks_the_metric(tiny_records: str, tmp_path: pathlib.Path):
    given = ("evaluation.every=2", "evaluation.metric=loss/sop")
    with pytest.raises(InputError, match="--heldout must have .* loss/sop. .*give accuracy/mlm, l"):
        start(tiny_records, tmp_path / "run", *given, evaluation=scripted(3.0, 2.0))


def test_an_unknown_metric_is_told_with_those_that_there_are(
    tiny_records: str, tmp_path: pathlib.Path
):
    given = ("evaluation.every=2", "evaluation.metric=loss/nsp")
    with pytest.raises(InputError, match="loss/mlm, accuracy/mlm"):
        start(tiny_records, tmp_path / "run", *given, evaluation=scripted(3.0))
