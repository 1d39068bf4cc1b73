"""The paper's rows: medians, Avg and speed-up by hand; two runs on a task end to end."""

import pathlib
import shutil

import pytest

from albert_tf import cli
from albert_tf.errors import InputError, InputNotFoundError
from albert_tf.runs import RunDir
from finetuning import table, train
from finetuning.table import TableOptions
from tests.finetuning_side.conftest import QUICK


@pytest.fixture
def runs(start: str, tmp_path: pathlib.Path) -> pathlib.Path:
    """Two copies of a pretraining run, the second twice as fast."""
    for name, speed in (("a", 1000.0), ("b", 2000.0)):
        shutil.copytree(start, tmp_path / "runs" / name)
        RunDir(str(tmp_path / "runs" / name)).finish({"tokens_per_s": speed})
    return tmp_path / "runs"


def test_a_row_by_hand(runs: pathlib.Path):
    one, other = str(runs / "a"), str(runs / "b")
    results = {
        (one, "squad2"): [{"f1": f1, "exact_match": 0.5} for f1 in (0.60, 0.70, 0.65)],
        (one, "cola"): [{"mcc": 0.25, "seconds": 3.0}],
        (other, "cola"): [{"mcc": 0.5}],
    }
    lines = table.table_of([one, other], ["squad2", "cola"], results).splitlines()
    count = RunDir(one).config() and train.Start.of(one, None, None).config.param_count()
    # Avg of the medians of SQuAD's mean and MCC: ((65 + 50) / 2 + 25) / 2.
    assert lines[2] == f"| a | {count:,} | 65.0/50.0 | 25.0 | 41.2 | 1.0x |"
    assert lines[3] == f"| b | {count:,} | failed | 50.0 |  | 2.0x |"


@pytest.mark.slow
def test_two_runs_end_to_end(
    runs: pathlib.Path, fruit: str, tmp_path: pathlib.Path, monkeypatch, capsys
):
    begun = []

    def run(command: list[str]) -> int:
        begun.append(command)
        assert command[:2] == ["-m", "finetuning.train"]
        train.main(cli.parse(train.FinetuneOptions, command[1:], "", ""))
        return 0

    monkeypatch.setattr(table, "_run", run)
    quick = tuple(value.replace("steps=60", "steps=20") for value in QUICK)
    options = TableOptions(
        (f"{runs}/*",), "text_classification", str(pathlib.Path(fruit).parent),
        str(tmp_path / "table"), set=quick,
    )  # fmt: skip
    assert table.main(options) == 0
    written = (tmp_path / "table" / "table.md").read_text()
    for name in ("a", "b"):
        result = RunDir(str(tmp_path / "table" / name / "text_classification")).result()
        assert f"| {name} |" in written and f"| {100 * result['accuracy']:.1f} |" in written
    assert len((tmp_path / "table" / "results.csv").read_text().splitlines()) == 3
    capsys.readouterr()
    assert table.main(options) == 0  # taken up again: nothing is trained
    assert capsys.readouterr().out.count("already complete") == 2 and len(begun) == 4


def test_a_failure_is_told_and_the_others_go_on(
    runs: pathlib.Path, fruit: str, tmp_path: pathlib.Path, monkeypatch, capsys
):
    monkeypatch.setattr(table, "_run", lambda command: 2)
    options = TableOptions(
        (f"{runs}/*",), "text_classification", str(pathlib.Path(fruit).parent), str(tmp_path / "t")
    )
    assert table.main(options) == cli.USAGE_ERROR
    assert capsys.readouterr().err.count("failed: ") == 2


def test_two_runs_of_one_name(start: str, runs: pathlib.Path, tmp_path: pathlib.Path):
    twice = table._runs((f"{runs}/*", f"{runs}/a"))
    assert [pathlib.Path(path).name for path in twice] == ["a", "b"]
    shutil.copytree(start, tmp_path / "more" / "a")
    with pytest.raises(InputError, match=r"runs/a and .*more/a. Rename one") as error:
        table._runs((f"{runs}/*", f"{tmp_path}/more/*"))
    assert "runs/b" not in str(error.value)


def test_a_task_s_folder(tmp_path: pathlib.Path):
    for name in ("RACE", "SQuAD", "Squad2"):
        (tmp_path / name).mkdir()
    found = {task: table._folder(str(tmp_path), task) for task in
             ("race", "race-middle", "race-high", "squad1", "squad2")}  # fmt: skip
    assert {task: pathlib.Path(path).name for task, path in found.items()} == {
        "race": "RACE", "race-middle": "RACE", "race-high": "RACE", "squad1": "SQuAD",
        "squad2": "Squad2",
    }  # fmt: skip


def test_mistakes(runs: pathlib.Path, tmp_path: pathlib.Path):
    def of(**changes: str) -> TableOptions:
        values = {"runs": (f"{runs}/*",), "tasks": "cola", "data_dir": str(tmp_path)}
        return TableOptions(**values | changes, output=str(tmp_path / "t"))

    with pytest.raises(InputNotFoundError, match=r"no folder cola in .*which has runs"):
        table.main(of())
    with pytest.raises(InputError, match="unknown task `colla`. Did you mean cola"):
        table.main(of(tasks="colla"))
    with pytest.raises(InputNotFoundError, match="--runs matches no run"):
        table.main(of(runs=(f"{tmp_path}/none/*",)))
    assert not (tmp_path / "t").exists()
