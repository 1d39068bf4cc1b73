"""`finetuning.table --part`: finished runs on a part with known answers, each scored once."""

import csv
import pathlib
import shutil

import pytest

from albert_tf.runtime import commands
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.runtime.files import outputs
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.predictor import load_predictor
from finetuning import table
from finetuning.reporting import paper_table
from finetuning.reporting.intact_results import read_result
from finetuning.table import TableOptions
from tests.finetuning.untrained import leave_run, leave_weights

NAME = "text_classification"
TEXTS = [f"apple saw {'pear ' * (i % 7)}{'file ' * (i % 5)}" for i in range(35)]


@pytest.fixture
def data(fruit: str, tmp_path: pathlib.Path) -> pathlib.Path:
    shutil.copytree(fruit, tmp_path / "data")
    return tmp_path / "data"


def write_test(data: pathlib.Path, labels: list[str]) -> None:
    rows = [f"{text}\t{label}\n" for text, label in zip(TEXTS, labels, strict=True)]
    (data / "test.tsv").write_text("text\tlabel\n" + "".join(rows))


def test_finished_runs_are_scored_on_another_part(
    start: str, data: pathlib.Path, tmp_path: pathlib.Path, capsys
):
    section = ClassifierSettings(labels=("fruit", "tool"), seq_length=16)
    path = str(tmp_path / "t" / pathlib.Path(start).name / NAME)

    def run(command: list[str]) -> int:
        if not RunDir(path).is_complete:
            leave_weights(leave_run(start, pathlib.Path(path), NAME, section), 1)
            RunDir(path).finish({"metric": "accuracy", "accuracy": 0.5, "dev_examples": 40})
        return 0

    predicted = ["fruit"] * 35
    write_test(data, predicted)
    options = TableOptions(
        (f"bag-of-words,{start}",), NAME, str(data), str(tmp_path / "t"), part="test"
    )
    assert table.main(options, run) == 0
    predicted = [each["label"] for each in load_predictor(path)(TEXTS)]
    write_test(
        data, [*predicted[:28], *({"fruit": "tool"}.get(p, "fruit") for p in predicted[28:])]
    )
    assert table.main(options, run) == 0
    lines = (tmp_path / "t" / "table-test.md").read_text().splitlines()
    # 28 of 35 are right: 80 % with the standard error sqrt(0.8 * 0.2 / 35).
    assert lines[3].split(" | ")[2] == "80.0 ± 6.8" and lines[-1].split(" | ")[2] == "35"
    assert lines[-1].startswith("| test examples")
    with open(tmp_path / "t" / "results-test.csv", encoding="utf-8", newline="") as file:
        words, tuned, _ = csv.DictReader(file)
    assert (tuned["accuracy"], tuned["test_examples"], words["test_examples"]) == (
        "0.8",
        "35",
        "35",
    )
    flat = paper_table._flat({"dev_examples": 9, "train_examples": 50}, "train")
    assert flat == {"scored_examples": 9, "train_examples": 50}
    assert (words["seed"], tuned["seed"]) == ("", "3")
    assert (tmp_path / "t" / "table.md").read_text().splitlines()[3].split(" | ")[2] == "50.0"
    shutil.rmtree(RunDir(path).checkpoints_path)
    assert table.main(options, run) == 0  # the scores are those that the run has kept
    assert (tmp_path / "t" / "table-test.md").read_text().splitlines() == lines
    kept = pathlib.Path(RunDir(path).evaluation_path("test"))
    kept.write_text(kept.read_text().replace('"data": "', '"data": "1'))  # of other examples
    capsys.readouterr()
    assert table.main(options, run) == commands.USAGE_ERROR  # they would be computed again
    write_test(data, predicted)
    capsys.readouterr()
    assert table.main(options, run) == commands.USAGE_ERROR
    assert capsys.readouterr().err.startswith(f"failed: {path}: ")
    assert "| failed |" in (tmp_path / "t" / "table-test.md").read_text().splitlines()[3]


RESULT = {"metric": "accuracy", "accuracy": 0.5, "dev_examples": 40, "baselines": {"accuracy": 0.5}}


@pytest.mark.parametrize(
    "changes",
    [
        {"metric": ["accuracy"]},
        {"accuracy": "0.5"},
        {"dev_examples": None},
        {"baselines": 0.5},
        {"standard_errors": {"accuracy": []}},
        {"standard_error": {}},
    ],
)
def test_a_damaged_result_is_a_failure_of_its_run(
    changes: dict, start: str, data: pathlib.Path, tmp_path: pathlib.Path, capsys
):
    run = RunDir(str(tmp_path / "t" / pathlib.Path(start).name / NAME))
    leave_run(start, pathlib.Path(run.path), NAME, ClassifierSettings(labels=("fruit", "tool")))
    run.finish(RESULT)
    options = TableOptions((start,), NAME, str(data), str(tmp_path / "t"))
    assert table.main(options, lambda command: 0) == 0
    run.finish(RESULT | changes)
    capsys.readouterr()
    assert table.main(options, lambda command: 0) == commands.USAGE_ERROR
    assert capsys.readouterr().err.startswith(f"failed: {run.path}: '{run.path}' must have the ")
    with pytest.raises(InputError, match="result.json' must have the scores"):
        read_result(run)


def test_a_damaged_evaluation_is_a_failure_of_its_run(
    start: str, data: pathlib.Path, tmp_path: pathlib.Path, capsys
):
    run = RunDir(str(tmp_path / "t" / pathlib.Path(start).name / NAME))
    section = ClassifierSettings(labels=("fruit", "tool"), seq_length=16)
    leave_weights(leave_run(start, pathlib.Path(run.path), NAME, section), 1)
    run.finish(RESULT)
    options = TableOptions((start,), NAME, str(data), str(tmp_path / "t"), part="dev")
    assert table.main(options, lambda command: 0) == 0
    kept = run.evaluation_path("dev")
    outputs.write_json(kept, outputs.read_json(kept) | {"result": {"accuracy": 0.5}})
    capsys.readouterr()
    assert table.main(options, lambda command: 0) == commands.USAGE_ERROR
    assert "evaluations/dev.json' must have the scores" in capsys.readouterr().err


@pytest.mark.parametrize("speed", ["fast", 0, -1.5, [1.0]])
def test_a_speed_that_is_no_positive_number_is_refused(
    speed, start: str, data: pathlib.Path, tmp_path: pathlib.Path
):
    trained = RunDir(str(tmp_path / "trained"))
    shutil.copytree(start, trained.path)
    trained.finish({"tokens_per_s": speed})
    options = TableOptions(
        (start,), NAME, str(data), str(tmp_path / "t"), baseline=trained.path, dry_run=True
    )
    with pytest.raises(InputError, match="`tokens_per_s` must be a positive number"):
        table.main(options)


def test_a_part_without_answers_is_refused_before_training(
    start: str, data: pathlib.Path, tmp_path: pathlib.Path
):
    begun: list[list[str]] = []
    options = TableOptions((start,), NAME, str(data), str(tmp_path / "t"), part="test")

    def run(command: list[str]) -> int:
        begun.append(command)
        return 0

    with pytest.raises(InputNotFoundError, match=r"no file test\.tsv"):
        table.main(options, run)
    (data / "test.tsv").write_text("text\nan apple\na saw\n")
    with pytest.raises(InputError, match=r"--part .*'test' in .*data', where 2 of 2 examples have"):
        table.main(options, run)
    assert not begun
