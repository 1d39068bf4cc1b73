"""The result of a run: its last row, and what is of all its rows."""

import os
import pathlib

import pytest

from albert_tf.runtime.run_dir import RunDir
from data.objectives.masked_lm import MaskedLm
from data.objectives.registry import ObjectiveConfig
from pretraining.loop.result import finish

OBJECTIVES = (MaskedLm(), ObjectiveConfig().of_pairs)


def test_speed_and_time_are_of_the_whole_run(tmp_path: pathlib.Path, capsys):
    """Loops of 10, 10 and, at the end, 5 steps: 10 x 2 + 10 x 1 + 5 x 8 ms.

    The first one compiles, and the last is slow: the speed is the median.
    """
    run = RunDir(str(tmp_path / "run"))
    os.makedirs(run.path)
    for step, step_ms, speed in ((10, 2.0, 100.0), (20, 1.0, 300.0), (25, 8.0, 200.0)):
        heldout = {f"heldout/loss/{name}": 0.5 for name in ("mlm", "pair", "sop")}
        row = {"step": step, "loss/mlm": 100.0 / step, "lr": 0.1, "skipped": 0}
        speeds = {"step_ms": step_ms, "tokens_per_s": speed, "sequences_per_s": speed / 10}
        run.add_metrics(row | speeds | heldout)
    with open(run.skipped_path, "w", encoding="utf-8") as file:
        file.writelines(
            f'{{"restores": 0, "step": {step}, "records": []}}\n' for step in (3, 4, 12)
        )
    finish(run, OBJECTIVES)
    result = run.result()
    assert (result["step"], result["loss/mlm"], result["tokens_per_s"]) == (25, 4.0, 200.0)
    assert (result["step_ms"], result["sequences_per_s"]) == (2.0, 20.0)
    assert result["training_s"] == pytest.approx(0.07)
    assert result["skipped"] == 3  # also those of rows that were dropped
    plots = {"loss", "learning_rate", "tokens_per_second", "held-out_loss"}
    assert set(os.listdir(run.plots_path)) == {f"{name}.png" for name in plots}
    shown = capsys.readouterr().out
    assert "heldout/loss/sop 0.5" in shown and "heldout/loss/pair" not in shown  # the same
