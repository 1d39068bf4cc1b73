"""Runs with several labels a text, through the commands; they are not trained but where it says."""

import dataclasses
import functools
import json
import math
import pathlib
import random
import re
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.runtime import settings
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.multi_label.model import MultiLabelSettings
from albert_tf.tasks.predictor import task_of
from albert_tf.tasks.regressor.model import RegressorSettings
from albert_tf.tasks.spans.model import SpanSettings
from finetuning import depth, distill, ensemble, predict, table
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Reading, Source
from finetuning.kinds.multi_label import SigmoidSoftCrossEntropy
from finetuning.reporting.report import fingerprint
from finetuning.train import FinetuneOptions, main
from tests.finetuning import conftest
from tests.finetuning.untrained import leave_run, leave_weights, load_once

TEXTS = ("an apple and a saw", "a pear", "", "it is here")
QUICK = ("training.steps=4", "training.batch_size=8", "task.seq_length=32")


def fruit_and_tools(count: int, seed: int) -> list[tuple[str, list[str]]]:
    """Texts that name fruit, tools, both or neither, and what they name."""
    rng, rows = random.Random(seed), []
    for _ in range(count):
        names = [name for name in sorted(conftest.WORDS) if rng.random() < 0.5]
        words = [word for name in names for word in rng.choices(conftest.WORDS[name], k=2)]
        rows.append((" ".join([*words, "here"]), names))
    return rows


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("several") / "multi_label"
    folder.mkdir()
    for part, (count, seed) in {"train": (160, 0), "dev": (40, 1), "test": (8, 2)}.items():
        rows = fruit_and_tools(count, seed)
        lines = [f"{text}\t{' ; '.join(names)}\n" for text, names in rows]
        (folder / f"{part}.tsv").write_text("text\tlabel\n" + "".join(lines))
    return folder


@pytest.fixture(scope="module")
def runs(start: str, data: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Two runs with random weights and thresholds of their own."""
    folder = tmp_path_factory.mktemp("runs")
    reading = Reading(label_separator=";")
    digest = fingerprint(DATASETS["multi_label"].read(Source(str(data), reading=reading)))
    for seed, thresholds in ((0, (0.5, 0.4)), (1, (0.3, 0.6))):
        section = MultiLabelSettings(("fruit", "tool"), thresholds, seq_length=32)
        run = leave_run(start, folder / str(seed), "multi_label", section, digest)
        config = RunDir(run).config() | {"reading": settings.to_dict(reading)}
        pathlib.Path(RunDir(run).config_path).write_text(json.dumps(config))
        leave_weights(run, seed)
    return folder


@pytest.fixture
def tuning(start: str, data: pathlib.Path, tmp_path: pathlib.Path) -> Callable:
    """(changes) -> the command that begins a run."""
    values = {"init": start, "label_separator": ";"}
    run = str(tmp_path / "run")
    return functools.partial(FinetuneOptions, "multi_label", run, str(data), **values)


@pytest.fixture
def distilling(start: str, data: pathlib.Path, runs: pathlib.Path, tmp_path) -> Callable:
    """(changes) -> the command that distills the first run."""
    arguments = (str(runs / "0"), "multi_label", str(tmp_path / "small"), str(data))
    return functools.partial(distill.DistillOptions, *arguments, student=start)


def ask(run: pathlib.Path, folder: pathlib.Path, **options) -> list[str]:
    (folder / "in.txt").write_text("\n".join(TEXTS) + "\n")
    out = folder / "out.txt"
    asked = predict.PredictOptions(str(run), str(folder / "in.txt"), str(out), **options)
    predict.main(asked, load=load_once)
    return out.read_text().splitlines()


def test_lines_are_answered(runs: pathlib.Path, tmp_path: pathlib.Path):
    wanted = load_once(str(runs / "0"))(list(TEXTS))
    rows = [json.loads(line) for line in ask(runs / "0", tmp_path)]
    for row, answer in zip(rows, wanted, strict=True):
        values = answer["probabilities"]
        assert row["probabilities"] == pytest.approx(values, abs=1e-5)
        chosen = [name for name, least in (("fruit", 0.5), ("tool", 0.4)) if values[name] > least]
        assert row["labels"] == answer["labels"] == sorted(chosen, key=lambda name: -values[name])
    tsv = [line.split("\t") for line in ask(runs / "0", tmp_path, format="tsv")]
    assert [json.loads(cells[0]) for cells in tsv] == [row["labels"] for row in rows]
    assert json.loads(tsv[0][1]) == rows[0]["probabilities"]


@pytest.mark.parametrize(("threshold", "count"), [(0.0, 2), (1.0, 0)])
def test_another_threshold(runs: pathlib.Path, tmp_path: pathlib.Path, threshold, count):
    rows = [json.loads(line) for line in ask(runs / "0", tmp_path, threshold=threshold)]
    assert [len(row["labels"]) for row in rows] == [count] * len(TEXTS)


def test_a_threshold_needs_labels(start: str, tmp_path: pathlib.Path):
    run = leave_run(start, tmp_path / "run", "text_regression", RegressorSettings(seq_length=16))
    leave_weights(run, 0)
    with pytest.raises(InputError, match="--threshold requires a run on texts with several labels"):
        predict.main(predict.PredictOptions(run, threshold=0.5))
    with pytest.raises(ConfigError, match=r"--threshold must be in \[0, 1\]"):
        predict.PredictOptions(run, threshold=1.5)


def test_a_part_and_its_submission(runs: pathlib.Path, data: pathlib.Path, tmp_path, capsys):
    out, submission = tmp_path / "out.jsonl", tmp_path / "sub.tsv"
    given = {"data_dir": str(data), "part": "test", "output": str(out), "threshold": 0.0}
    options = predict.PredictOptions(str(runs / "1"), submission=str(submission), **given)
    predict.main(options, load=load_once)
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    lines = [f"{i}\t{';'.join(answer['labels'])}" for i, answer in enumerate(answers)]
    assert submission.read_text().splitlines() == ["index\tprediction", *lines]
    assert len(answers) == 8 and len(answers[0]["labels"]) == 2
    # All labels are predicted: F1 is 2 p / (p + 1) for a share p of them that is right.
    share = sum(len(names) for _, names in fruit_and_tools(8, 2)) / 16
    printed = capsys.readouterr().err
    assert f"micro_f1 {2 * share / (share + 1):.4f}" in printed
    with pytest.raises(InputError, match="text_classification requires a run with `task.kind`"):
        predict.main(dataclasses.replace(options, task="text_classification"), load=load_once)


@pytest.mark.slow
def test_an_ensemble_averages_probabilities_and_thresholds(
    runs: pathlib.Path, data: pathlib.Path, tmp_path: pathlib.Path
):
    output = tmp_path / "both"
    ensemble.main(
        ensemble.EnsembleOptions(
            (str(runs / "*"),),
            str(output),
            str(data),
            select="all",
            part="test",
            submission=str(output / "test.tsv"),
        )
    )
    reading = Reading(label_separator=";")
    examples = DATASETS["multi_label"].read(Source(str(data), reading=reading)).dev["dev"]
    members = [load_once(str(runs / name))(examples) for name in "01"]
    values = [[list(each["probabilities"].values()) for each in member] for member in members]
    wanted = np.mean(values, axis=0)
    lines = [json.loads(line) for line in (output / "predictions.jsonl").open()]
    for line, row in zip(lines, wanted, strict=True):
        found = line["prediction"]
        np.testing.assert_allclose(list(found["probabilities"].values()), row, atol=1e-5)
        chosen = {name for name, p, t in zip(("fruit", "tool"), row, (0.4, 0.5)) if p > t}  # noqa: B905
        assert set(found["labels"]) == chosen
    names = {tuple(line["example"]["label"]) for line in lines}
    assert names == {(), ("fruit",), ("tool",), ("fruit", "tool")}
    assert len((output / "test.tsv").read_text().splitlines()) == 9


def test_runs_without_a_table_of_depths_are_refused(
    runs: pathlib.Path, data: pathlib.Path, start: str, tmp_path
):
    with pytest.raises(InputError, match="--patience is for runs of kind classifier, whose"):
        depth.main(depth.DepthOptions(str(runs / "0"), str(data), patience="1"))
    other = leave_run(start, tmp_path / "run", "squad1", SpanSettings(seq_length=32, doc_stride=8))
    leave_weights(other, 0)
    with pytest.raises(InputError, match="must be of kind classifier or multi_label or regressor"):
        depth.main(depth.DepthOptions(other, str(data)))


def test_a_dry_run_counts_examples_and_steps(tuning, data: pathlib.Path, tmp_path, capsys):
    values = ("training.epochs=2", "training.batch_size=8", "training.threshold_share=0.25")
    main(tuning(dry_run=True, set=(*values, "task.seq_length=32")))
    found = re.search(
        rf"examples of `{data}`: (\d+) training, (\d+) held-out, 40 dev; (\d+) steps of 8, 1 rep",
        capsys.readouterr().out,
    )
    assert found
    train, held_out, steps = map(int, found.groups())
    assert train + held_out == 160 and steps == math.ceil(2 * train / 8) and held_out > 20
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_dry_runs(tuning, distilling, tmp_path, capsys):
    main(tuning(dry_run=True, set=QUICK))
    distill.main(distilling(dry_run=True, set=QUICK))
    printed = capsys.readouterr().out
    train, student = [part[: part.index("\n}") + 2] for part in printed.split("\n{")[1:]]
    train, student = (json.loads("{" + part) for part in (train, student))
    assert train["reading"]["label_separator"] == student["reading"]["label_separator"] == ";"
    assert train["task"]["thresholds"] == [0.5, 0.5]
    assert student["task"]["thresholds"] == [0.5, 0.4]  # the teacher's
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        (("training.threshold_per_label=true",), "`training.threshold_per_label` requires.*share"),
        (("training.threshold_share=0.0001",), "must leave texts with labels in both parts"),
        (("task.thresholds=0.3",), "`task.thresholds` follows from the data"),
        (
            ("training.class_weights=balanced",),
            "`training.class_weights` requires a task of kind cl",
        ),
        (("training.metric=accuracy",), "must be a score of --task=multi_label: macro_f1, micro"),
    ],
)
def test_settings_that_do_not_fit(assignments, words, tuning, tmp_path):
    with pytest.raises(InputError, match=words):
        main(tuning(set=(*QUICK, *assignments)))
    assert not any(tmp_path.iterdir())


def test_a_student_has_its_teacher_s_thresholds(distilling):
    options = distilling(set=(*QUICK, "training.threshold_share=0.1"))
    with pytest.raises(InputError, match=r"`training.threshold_share` must be 0 here"):
        distill.main(options)
    with pytest.raises(InputError, match=r"`training.calibrate` must be false here"):
        distill.main(distilling(set=(*QUICK, "training.calibrate=true")))


def test_the_distillation_loss_by_hand():
    """Teacher 0.8 and 0.5, student 0.5 and 0.5 at T = 2: logits are halved."""
    outputs = tf.constant(2 * np.log([[0.8 / 0.2, 1.0]]))
    loss = SigmoidSoftCrossEntropy(2.0)(outputs, tf.zeros([1, 2], tf.float64))
    assert float(loss) == pytest.approx(4 * np.log(2))
    entropy = -(0.8 * np.log(0.8) + 0.2 * np.log(0.2))
    itself = SigmoidSoftCrossEntropy(2.0)(outputs, outputs)
    assert float(itself) == pytest.approx(4 * (entropy + np.log(2)) / 2)


@pytest.mark.slow
def test_thresholds_chosen_on_held_out_texts(tuning, tmp_path, capsys):
    """A run from start to its resumption: each threshold is the best for the held-out texts."""
    chosen = ("training.threshold_share=0.25", "training.threshold_per_label=true")
    options = tuning(set=(*conftest.QUICK, *chosen))
    main(options)
    run = RunDir(options.run_dir)
    result, thresholds = run.result(), task_of(run.path).thresholds
    assert result["metric"] == "average_precision" and result["average_precision"] > 0.95
    assert result["macro_f1"] > 0.9 and 90 < result["train_examples"] < 150
    assert all(threshold != 0.5 for threshold in thresholds) and len(set(thresholds)) == 2
    card = (tmp_path / "run" / "README.md").read_text()
    assert all(f" | {threshold:.4f} |" in card for threshold in thresholds)
    assert (
        f"texts held out of training ({1 - result['train_examples'] / 160:.1%} of 160); 0" in card
    )
    assert set(result["at_default_threshold"]) == {"macro_f1", "micro_f1"}
    (tmp_path / "run" / "result.json").unlink()  # interrupted before its end
    capsys.readouterr()
    main(options)
    assert task_of(run.path).thresholds == pytest.approx(thresholds, abs=1e-5)
    main(options)
    assert "already complete" in capsys.readouterr().out


def test_a_table_has_words_as_a_baseline(start: str, tmp_path: pathlib.Path):
    folder = tmp_path / "data" / "Multi_Label"
    folder.mkdir(parents=True)
    for part, (count, seed) in {"train": (160, 0), "dev": (40, 1)}.items():
        rows = [json.dumps({"text": a, "label": b}) for a, b in fruit_and_tools(count, seed)]
        (folder / f"{part}.jsonl").write_text("\n".join(rows))
    options = table.TableOptions(
        ("bag-of-words", f"random:{start}"),
        "multi_label",
        str(tmp_path / "data"),
        str(tmp_path / "t"),
    )
    begun: list[list[str]] = []
    table.main(options, lambda command: begun.append(command) or 2)  # type: ignore[func-returns-value]
    assert [command[2:4] for command in begun] == [
        ["--task=multi_label", f"--data_dir={folder}"],
    ]
    words = (tmp_path / "t" / "table.md").read_text().splitlines()[2]
    assert words.startswith("| bag-of-words |  | 100.0")
