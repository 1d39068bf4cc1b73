"""Runs on own questions with different numbers of options, through the commands; not trained."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.export import __main__ as export
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.examples import ChoiceExample
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from finetuning import ensemble, predict
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Source
from finetuning.kinds.registry import FINETUNING
from finetuning.reporting.report import baselines_of, fingerprint
from finetuning.train import FinetuneOptions, main
from tests.finetuning.untrained import leave_run, leave_weights

ROWS = [
    {"question": "What is _ ?", "options": ["a saw", "a file", "it"], "label": "C"},
    {"question": "Which?", "context": "A pear.", "options": ["a pear", "a drill"], "label": "A"},
    {"question": "What?", "options": ["plum", "saw", "it", "file"], "label": "file"},
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """Training questions of two and three options, dev questions of two to four."""
    folder = tmp_path_factory.mktemp("questions")
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, ROWS[:2])))
    (folder / "dev.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return Source(str(folder))


@pytest.fixture(scope="module")
def runs(start: str, data: Source, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("runs")
    section = MultipleChoiceSettings(num_choices=3, seq_length=32)
    digest = fingerprint(DATASETS["multiple_choice"].read(data))
    for seed in (0, 1):
        path = leave_run(start, folder / str(seed), "multiple_choice", section, digest)
        leave_weights(path, seed)
    return folder


def test_lines_and_parts_are_answered(runs, data: Source, tmp_path: pathlib.Path, capsys):
    run, lines, out = str(runs / "0"), tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines.write_text("\n".join(map(json.dumps, ROWS)) + "\n")
    predict.main(predict.PredictOptions(run, str(lines), str(out)))
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    examples = DATASETS["multiple_choice"].read(data).dev["dev"]
    for answer, wanted in zip(answers, albert_tf.load_predictor(run)(examples), strict=True):
        np.testing.assert_allclose(answer["probabilities"], wanted["probabilities"], atol=1e-5)
    assert [len(answer["probabilities"]) for answer in answers] == [3, 2, 4]
    submission = tmp_path / "sub.tsv"
    capsys.readouterr()
    options = predict.PredictOptions(
        run, data_dir=data.data_dir, part="dev", submission=str(submission)
    )
    predict.main(options)
    letters = [f"{i}\t{answer['label']}" for i, answer in enumerate(answers)]
    assert submission.read_text().splitlines() == ["index\tprediction", *letters]
    right = np.mean([a["choice"] == b for a, b in zip(answers, (2, 0, 3), strict=True)])
    assert f"accuracy {right:.4f}" in capsys.readouterr().err


def test_a_line_that_does_not_fit_leaves_no_output(runs, tmp_path: pathlib.Path):
    lines = tmp_path / "in.jsonl"
    lines.write_text(json.dumps(ROWS[0]) + '\n{"question": "q", "options": ["a"]}\n')
    with pytest.raises(InputError, match=r"in.jsonl:2: options must be a list of at least two"):
        out = str(tmp_path / "out.jsonl")
        predict.main(predict.PredictOptions(str(runs / "0"), str(lines), out))
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.slow
def test_an_ensemble_averages_each_question_s_options(runs, data: Source, tmp_path: pathlib.Path):
    output = tmp_path / "both"
    members = (str(runs / "*"),)
    ensemble.main(ensemble.EnsembleOptions(members, str(output), str(data.data_dir), select="all"))
    examples = DATASETS["multiple_choice"].read(data).dev["dev"]
    answers = [albert_tf.load_predictor(str(runs / name))(examples) for name in "01"]
    lines = [json.loads(line) for line in (output / "predictions.jsonl").read_text().splitlines()]
    for line, *pair in zip(lines, *answers, strict=True):
        wanted = np.mean([each["probabilities"] for each in pair], axis=0)
        np.testing.assert_allclose(line["prediction"]["probabilities"], wanted, atol=1e-5)


@pytest.mark.slow
def test_the_export_answers_questions_of_any_number(runs, tmp_path: pathlib.Path):
    run, output = str(runs / "0"), str(tmp_path / "questions")
    export.main(export.ExportOptions(run, output))
    ask = tf.saved_model.load(f"{output}/1").signatures["padded"]
    examples = [ChoiceExample("What?", "", tuple(row["options"])) for row in ROWS]
    options = [[*each.options, *[""] * (4 - len(each.options))] for each in examples]
    found = ask(
        question=tf.constant(["What?"] * 3),
        context=tf.constant([""] * 3),
        options=tf.constant(options),
        num_options=tf.constant([3, 2, 4]),
    )
    for row, answer in enumerate(albert_tf.load_predictor(run)(examples)):
        values = found["probabilities"][row, : len(answer["probabilities"])]
        np.testing.assert_allclose(values, answer["probabilities"], atol=1e-5)
        assert found["label"][row].numpy().decode() == answer["label"]


def test_a_dry_run(start: str, data: Source, tmp_path: pathlib.Path, capsys):
    options = FinetuneOptions(
        "multiple_choice",
        str(tmp_path / "run"),
        str(data.data_dir),
        init=start,
        dry_run=True,
        set=("task.seq_length=32",),
    )
    main(options)
    printed = capsys.readouterr().out
    task = json.loads(printed[printed.index("{") :])["task"]
    assert (task["kind"], task["num_choices"]) == ("multiple_choice", 3)
    assert not any(tmp_path.iterdir())


def test_the_baseline_may_be_an_option_that_a_question_lacks(data: Source):
    """Option C and A are correct once in training, C first; in dev C is correct once of 3."""
    read = DATASETS["multiple_choice"].read(data)
    assert (FINETUNING["multiple_choice"].constant_answer(read) or [""])[0].startswith(
        "always option C"
    )
    assert baselines_of(DATASETS["multiple_choice"], read, "dev") == {
        "accuracy": pytest.approx(1 / 3)
    }
