"""Comparing runs: by hand on written predictions, and on two trained seeds."""

import csv
import json
import os
import pathlib
import re
import shutil

import numpy as np
import pytest

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.examples import TextExample
from finetuning.compare import CompareOptions, main
from finetuning.datasets import DATASETS
from finetuning.kinds.registry import FINETUNING
from finetuning.reporting.report import write_predictions
from tests.finetuning.untrained import leave_run

TASK = ClassifierSettings(("no", "yes"), seq_length=16)
NO_RUN = r"--runs must name complete runs of finetuning.train. Received: '{}', where no folder"


@pytest.fixture
def leave(start: str, tmp_path: pathlib.Path):
    """(name, answers, dataset, labels) -> a run that gave these answers to the examples."""

    def write(name: str, given: str, dataset: str = "rte", right: str = "", **more) -> str:
        right = right or "01" * (len(given) // 2)
        path = leave_run(start, tmp_path / name, dataset, TASK, more.get("data", "same"))
        examples = [TextExample(f"text {i}", label=int(n)) for i, n in enumerate(right)]
        write_predictions(RunDir(path).predictions_path("dev"), TASK, answers(given), examples)
        return path

    return write


def answers(given: str) -> list[dict]:
    return [{"label": TASK.labels[int(n)], "probabilities": {"no": 0.5, "yes": 0.5}} for n in given]


def compared(tmp_path: pathlib.Path, *runs: str, **options) -> list[dict[str, str]]:
    """The rows of the CSV file."""
    output = tmp_path / "table.csv"
    main(CompareOptions(runs, output=str(output), **options))
    with open(output, newline="") as file:
        return list(csv.DictReader(file))


def test_the_error_of_a_difference_is_that_of_the_paired_mean(leave, tmp_path, capsys):
    """Of 400 answers, 24 are right in the first run only and 4 in the second only: d is -1 or +1.

    The differences have the mean -0.05 and the mean square 0.07, so that the standard error is
    sqrt(0.07 - 0.0025) / sqrt(400). That of 200 resamples varies by 1 in 20 of it.
    """
    right = "01" * 200
    wrong = "10" * 200
    first = leave("first", right[:300] + wrong[300:])
    second = leave("second", wrong[:24] + right[24:304] + wrong[304:])
    base, other = compared(tmp_path, first, second)
    assert float(base["accuracy"]) == 0.75 and float(other["accuracy"]) == pytest.approx(0.7)
    assert float(base["accuracy_error"]) == pytest.approx(np.sqrt(0.75 * 0.25 / 400))
    assert base["accuracy_difference"] == ""
    assert float(other["accuracy_difference"]) == pytest.approx(-0.05)
    expected = np.sqrt(0.0675 / 400)
    assert float(other["accuracy_difference_error"]) == pytest.approx(expected, rel=0.2)
    unpaired = np.hypot(float(base["accuracy_error"]), float(other["accuracy_error"]))
    assert unpaired > 2 * expected  # what pairing saves
    out = capsys.readouterr().out
    assert "| run | accuracy | difference |" in out and "-0.0500 ± 0.01" in out
    assert f"400 examples of dev; differences to {first}; ± is one standard error." in out


@pytest.mark.parametrize("dataset", ["rte", "cola", "mrpc"])  # accuracy, MCC, F1 and accuracy
def test_equal_answers_do_not_differ(dataset, leave, tmp_path, capsys):
    runs = [leave(name, "0110" * 10, dataset) for name in ("first", "second")]
    _, row = compared(tmp_path, ",".join(runs))
    for metric in DATASETS[dataset].metrics:
        values = [float(row[f"{metric}_difference{ending}"]) for ending in ("", "_error")]
        assert values == [0, 0] and float(row[f"{metric}_error"]) > 0
    assert "| +0.0000 |" in capsys.readouterr().out


def test_a_correlation_s_difference_is_of_the_same_resamples():
    """Scores less a constant correlate alike, however the examples are drawn."""
    rng, tuned = np.random.default_rng(1), FINETUNING["regressor"]
    labels = rng.normal(size=60)
    examples = [TextExample("", label=float(label)) for label in labels]
    noisy = labels + rng.normal(size=60)
    given, moved = ([{"score": float(score)} for score in noisy - less] for less in (0, 5))
    errors = tuned.standard_errors(DATASETS["sts-b"], moved, examples, given)
    assert errors == pytest.approx(dict.fromkeys(DATASETS["sts-b"].metrics, 0), abs=1e-9)
    alone = tuned.standard_errors(DATASETS["sts-b"], moved, examples)
    assert min(alone.values()) > 0.01


def test_few_examples_have_no_errors(leave, tmp_path, capsys):
    _, row = compared(tmp_path, leave("first", "01" * 10), leave("second", "0110" * 5))
    assert row["accuracy_difference"] == "-0.5" and row["accuracy_difference_error"] == ""
    assert "±" not in capsys.readouterr().out.splitlines()[3]


def test_seeds_are_runs_and_the_baseline_comes_first(tuned, tmp_path, capsys):
    last, first = (str(tuned / seed) for seed in ("seed-1", "seed-0"))
    rows = compared(tmp_path, str(tuned))
    assert [row["run"] for row in rows] == [first, last]
    for row in rows:
        result = RunDir(row["run"]).result()
        assert float(row["accuracy"]) == result["accuracy"]
        assert float(row["accuracy_error"]) == result["standard_errors"]["accuracy"]
    rows = compared(tmp_path, f"{tuned}/seed-*", baseline=last)
    assert [row["run"] for row in rows] == [last, first]
    main(CompareOptions((str(tuned),), dry_run=True))
    assert capsys.readouterr().out.endswith(f"{first}\n{last}\n")
    with pytest.raises(
        InputError, match="--baseline must be one run. Received: .*seed-0, .*seed-1"
    ):
        main(CompareOptions((first, last), baseline=str(tuned)))


def test_runs_of_other_training_data_are_compared_with_a_note(leave, tmp_path, capsys):
    runs = leave("first", "01" * 20), leave("second", "01" * 20, data="other")
    compared(tmp_path, *runs)
    note = f"note: {runs[1]}: the dev examples are those of {runs[0]}, but other data is not"
    assert note in capsys.readouterr().err


def test_runs_that_cannot_be_compared_are_named(leave, start, tmp_path):
    run = leave("run", "01" * 20)
    for name, dataset, right, message in (
        ("task", "qnli", "", "of the same dataset and labels. Received: .*'rte'.* and .*'qnli'"),
        ("dev", "rte", "10" * 20, "the same dev examples. Received: other ones, .*run with"),
    ):
        other = leave(name, "01" * 20, dataset, right)
        with pytest.raises(InputError, match=f"--runs must all .*{message}"):
            main(CompareOptions((run, other)))
    with pytest.raises(InputError, match="--runs must name two or more runs. Received: .*run. Add"):
        main(CompareOptions((run, run)))
    nothing = str(tmp_path / "nothing")
    for path, message in (
        (nothing, NO_RUN.format(re.escape(nothing))),
        (start, "is not a fine-tuned run: its task is 'pretraining'"),
    ):
        with pytest.raises(InputError, match=message):
            main(CompareOptions((run, path)))


def test_lost_and_damaged_predictions_are_named(leave, tmp_path):
    run, other = leave("run", "01" * 20), leave("other", "01" * 20)
    file = pathlib.Path(RunDir(other).predictions_path("dev"))
    lines = file.read_text().splitlines()
    for damaged in ({"example": {}}, {"example": {"first": "a", "label": "maybe"}}):
        file.write_text("\n".join([lines[0], json.dumps(damaged | {"prediction": {}})]))
        with pytest.raises(InputError, match=r"dev.jsonl:2 must be an example and its prediction"):
            main(CompareOptions((run, other)))
    example = json.loads(lines[1])["example"]
    for damaged in ({}, {"label": "a"}):
        row = {"example": example, "prediction": damaged}
        file.write_text("\n".join([lines[0], json.dumps(row)]))
        with pytest.raises(InputError, match=r"dev.jsonl must hold predictions of the kind"):
            main(CompareOptions((run, other)))
    shutil.rmtree(file.parent)
    with pytest.raises(InputError, match="other must be a run of finetuning.train, with predict"):
        main(CompareOptions((run, other)))


def test_a_seed_that_has_not_ended_is_noted(leave, tmp_path, capsys):
    first = leave("first", "01" * 20)
    (tmp_path / "seeds").mkdir()
    done, unfinished = (leave(f"seeds/seed-{seed}", "01" * 20) for seed in (0, 1))
    os.remove(RunDir(unfinished).result_path)
    rows = compared(tmp_path, first, str(tmp_path / "seeds"))
    assert [row["run"] for row in rows] == [first, done]
    assert f"note: {unfinished} has not ended and is left out." in capsys.readouterr().err
