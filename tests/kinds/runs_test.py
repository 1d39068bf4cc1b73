"""What every kind of task must do in fine-tuning: from its files to a whole run, and all it is for.

Runs are of two steps.
"""

import dataclasses
import functools
import json
import pathlib
import shutil
from collections.abc import Callable

import numpy as np
import pytest

from albert_tf.models.encoder import load_encoder
from albert_tf.runtime import devices
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.predictor import load_predictor, load_task_model, predict
from finetuning import depth, distill, ensemble, train
from finetuning import predict as prediction
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Source
from finetuning.kinds.registry import FINETUNING
from finetuning.train import FinetuneOptions
from tests.finetuning.datasets import race_test
from tests.finetuning.untrained import leave_weights
from tests.kinds.cases import CASES, FAST
from tests.kinds.comparing import same

RATE, STEPS = 1e-3, 2
VALUES = (
    "training.epochs=1",
    "training.batch_size=2",
    f"training.learning_rate={RATE}",
    "training.precision=float32",  # on every CPU, as that of the other runtime
    "training.weight_decay_rate=0",
    "task.seq_length=32",
)


def table_of(*labels: object) -> Callable[[pathlib.Path], None]:
    """Writes four texts with these labels; the first three are the dev part."""

    def write(folder: pathlib.Path) -> None:
        texts = ("an apple", "a saw and a file", "hammer", "pear")
        rows = [f"{text}\t{label}\n" for text, label in zip(texts, labels, strict=True)]
        for part, count in (("train", 4), ("dev", 3)):
            (folder / f"{part}.tsv").write_text("text\tlabel\n" + "".join(rows[:count]))

    return write


def write_squad(folder: pathlib.Path) -> None:
    """Of each of two contexts one question that it answers, and one that it does not."""
    paragraphs = [
        {
            "context": f"The {fruit} is red.",
            "qas": [
                {"id": f"{fruit} 1", "question": "What is red?", "is_impossible": False}
                | {"answers": [{"text": fruit, "answer_start": 4}]},
                {"id": f"{fruit} 2", "question": "Who?", "is_impossible": True, "answers": []},
            ],
        }
        for fruit in ("apple", "cherry")
    ]
    text = json.dumps({"version": "v2.0", "data": [{"paragraphs": paragraphs}]})
    for part in ("train", "dev"):
        (folder / f"{part}-v2.0.json").write_text(text)


def write_race(folder: pathlib.Path) -> None:
    for part in ("train", "dev"):
        passages = [race_test.passage(f"{part} {number}") for number in (1, 2)]
        race_test.write(folder, f"{part}/middle/all.txt", passages)


def write_names(folder: pathlib.Path) -> None:
    for part in ("train", "dev"):
        names = ("Ann", "Bo", "Cy", "Di")
        rows = [f"The O\nking O\n{name} B-person\nMay I-person\n" for name in names]
        (folder / f"{part}.conll").write_text("\n".join(rows))


def write_similar(folder: pathlib.Path) -> None:
    """Four scored pairs in STS-B's columns; the first three are the dev part."""
    texts = ("an apple", "a saw and a file", "hammer", "pear")
    rows = [f"{text}\tthe {text}\t{number}\n" for number, text in enumerate(texts)]
    for part, count in (("train", 4), ("dev", 3)):
        text = "sentence1\tsentence2\tscore\n" + "".join(rows[:count])
        (folder / f"{part}.tsv").write_text(text)


def write_candidates(folder: pathlib.Path) -> None:
    """Four queries with two or three candidates; the first three are the dev part."""
    words = ("apple", "saw", "hammer", "pear")
    rows = [
        {
            "query": f"a {word}",
            "candidates": [{"text": f"the {word}", "label": 2}, {"text": "a file", "label": 0}]
            + [{"text": "it", "label": 1}] * (number % 2),
        }
        for number, word in enumerate(words)
    ]
    for part, count in (("train", 4), ("dev", 3)):
        (folder / f"{part}.jsonl").write_text("\n".join(map(json.dumps, rows[:count])))


# Datasets by kind: how their files are written, the number of dev examples, the metric.
FILES = {
    "classifier": ("text_classification", table_of(*"abba"), 3, "accuracy"),
    "multi_label": ("multi_label", table_of("red,sweet", "", "sweet", "red"), 3, "macro_f1"),
    "regressor": ("text_regression", table_of(3, 20.5, 12, 2), 3, "pearson"),
    "multiple_choice": ("race-middle", write_race, 4, "accuracy"),
    "span": ("squad2", write_squad, 4, "f1"),
    "token_classifier": ("token_classification", write_names, 4, "f1"),
    "embedding": ("sts", write_similar, 3, "spearman"),
    "ranking": ("ranking", write_candidates, 3, "map"),
    "ordinal": ("stars", table_of(3, 0, 1, 2), 3, "accuracy"),
}
MORE = {
    "span": ("task.doc_stride=8", "task.query_length=8"),
    "token_classifier": ("task.doc_stride=8",),
}


@pytest.fixture(params=FAST)
def name(request, toy) -> str:
    """The name of a case; of each kind there is one run."""
    return request.param


@pytest.fixture(scope="session")
def tune(start: str, tmp_path_factory) -> Callable[[str], FinetuneOptions]:
    """(name of a kind) -> the command of a run that has ended."""
    devices.make_deterministic()  # as a run with --runtime=pjrt makes the process later

    @functools.cache
    def tune(kind: str) -> FinetuneOptions:
        dataset, write, *_ = FILES[kind]
        folder = tmp_path_factory.mktemp("runs")
        (folder / "data").mkdir()
        write(folder / "data")
        options = FinetuneOptions(
            dataset,
            str(folder / "run"),
            str(folder / "data"),
            init=start,
            recipe="none",
            device="cpu",
            set=(*VALUES, *MORE.get(kind, ())),
        )
        train.main(options)
        return options

    return tune


@pytest.fixture
def tuned(case, tune) -> FinetuneOptions:
    return tune(case.name)


def predictions_of(run_dir: str) -> list[dict]:
    lines = pathlib.Path(RunDir(run_dir).predictions_path("dev")).read_text("utf-8").splitlines()
    return [json.loads(line)["prediction"] for line in lines]


def dev_examples(options: FinetuneOptions) -> list:
    (examples,) = DATASETS[options.task].read(Source(options.data_dir)).dev.values()
    return examples


@pytest.mark.slow_parameters("classifier", "toy")  # of classifiers, see train_test.py
def test_a_run_is_whole(case, tuned, start: str):
    run, dataset = RunDir(tuned.run_dir), DATASETS[tuned.task]
    result, examples = run.result(), dev_examples(tuned)
    _, _, count, metric = FILES[case.name]
    assert run.config()["task"]["kind"] == case.name and run.metrics()[-1]["step"] == STEPS
    assert (result["train_examples"], result["dev_examples"], len(examples)) == (4, count, count)
    assert result["metric"] == metric and -1 <= result[metric] <= 1 and np.isfinite(result["loss"])
    answers = predictions_of(run.path)
    assert len(answers) == count
    assert dataset.score(answers, examples)[metric] == pytest.approx(result[metric], abs=1e-6)
    assert "## Worst mistakes" in pathlib.Path(run.card_path).read_text("utf-8")
    # Its weights are two steps of Adam away from the start's, but for those without a gradient.
    old, new = load_encoder(start), load_task_model(run.path).encoder
    moved = {
        weight.name: abs(weight - before).numpy().max()
        for before, weight in zip(old.weights, new.weights, strict=True)
    }
    still = {each for each, distance in moved.items() if distance == 0}
    is_without_pooler = case.name in ("span", "token_classifier", "embedding")
    assert all("pooler" in each for each in still) and bool(still) == is_without_pooler, still
    assert 0 < max(moved.values()) < 2 * STEPS * RATE


@pytest.mark.slow  # by default, see tests/finetuning/training/jax_fit_test.py
def test_steps_under_jax_are_those_of_tensorflow(tuned, tmp_path):
    pytest.importorskip("jax", reason="jax is absent: requirements-dev.txt")
    again = dataclasses.replace(tuned, run_dir=str(tmp_path / "run"), runtime="pjrt")
    train.main(again)
    ours, theirs = (RunDir(options.run_dir) for options in (again, tuned))
    assert [each.environment()["runtime"] for each in (ours, theirs)] == ["pjrt", "tensorflow"]
    for row, other in zip(ours.metrics(), theirs.metrics(), strict=True):
        assert row.keys() == other.keys()
        same = {name: value for name, value in other.items() if name != "seconds"}
        assert {name: row[name] for name in same} == pytest.approx(same, rel=1e-4, abs=1e-5)


@pytest.mark.slow
def test_a_run_that_lost_its_end_ends_as_before(tuned, tmp_path, capsys):
    again = dataclasses.replace(tuned, run_dir=str(tmp_path / "run"))
    run = RunDir(str(shutil.copytree(tuned.run_dir, again.run_dir)))
    result = run.result()
    for path in (run.result_path, run.predictions_path("dev"), run.card_path):
        pathlib.Path(path).unlink()
    train.main(again)
    assert {**run.result(), "seconds": 0} == {**result, "seconds": 0}
    assert predictions_of(run.path) == predictions_of(tuned.run_dir)
    assert pathlib.Path(run.card_path).is_file()
    train.main(again)
    assert "already complete" in capsys.readouterr().out


@pytest.mark.slow_parameters(*(each for each in FAST if each not in ("span", "multiple_choice")))
def test_parts_and_lines_are_predicted(case, tuned, tmp_path):
    out, lines = tmp_path / "out.jsonl", tmp_path / "in.jsonl"
    options = prediction.PredictOptions(tuned.run_dir, output=str(out))
    prediction.main(dataclasses.replace(options, data_dir=tuned.data_dir, part="dev"))
    found = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    wanted = predictions_of(tuned.run_dir)
    same([{**each, "id": ""} for each in found], [{**each, "id": ""} for each in wanted])
    lines.write_text(json.dumps(case.json_line | {"id": 7}) + "\n")
    prediction.main(dataclasses.replace(options, input=str(lines)))
    (answer,) = load_predictor(tuned.run_dir)([case.unlabeled(case.texts[0])])
    same([json.loads(line) for line in out.read_text("utf-8").splitlines()], [{"id": 7} | answer])


@pytest.mark.slow_parameters(*(each for each in FAST if each not in ("span", "token_classifier")))
def test_an_ensemble_is_the_mean_of_its_members(case, tuned, tmp_path):
    other, kind = str(shutil.copytree(tuned.run_dir, tmp_path / "other")), KINDS[case.name]
    shutil.rmtree(RunDir(other).checkpoints_path)
    leave_weights(other, seed=9)
    options = ensemble.EnsembleOptions(
        (tuned.run_dir, other), str(tmp_path / "both"), tuned.data_dir, select="all", part="dev"
    )
    ensemble.main(options)
    examples = dev_examples(tuned)
    members = [load_predictor(path) for path in (tuned.run_dir, other)]
    task = members[0].task
    features = kind.featurize(examples, members[0].tokenizer, task)
    one, two = (predict(member.model, features, 4) for member in members)
    wanted = kind.decode(kind.average([one, two]), features, examples, task)
    for file in ("predictions.jsonl", "dev.jsonl"):
        lines = (tmp_path / "both" / file).read_text("utf-8").splitlines()
        same([json.loads(line)["prediction"] for line in lines], wanted)
    assert wanted not in (predictions_of(tuned.run_dir), members[1](examples))
    result = json.loads((tmp_path / "both" / "result.json").read_text())
    assert result["members"] == [tuned.run_dir, other]
    scores = DATASETS[tuned.task].score(wanted, examples)
    assert result["ensemble"] == pytest.approx(scores, abs=1e-6)  # thresholds are float32


@pytest.mark.slow
@pytest.mark.parametrize("loss", distill.LOSSES)
def test_a_student_and_its_control_are_runs(case, tuned, tmp_path, loss):
    if loss not in FINETUNING[case.name].student_losses:
        return
    output = tmp_path / "small"
    options = distill.DistillOptions(
        tuned.run_dir,
        tuned.task,
        str(output),
        tuned.data_dir,
        student_layers=1,
        loss=loss,
        device="cpu",
        set=tuned.set,
    )
    distill.main(options)
    results = json.loads((output / "result.json").read_text())
    assert {each: result["layers"] for each, result in results.items()} == {
        "teacher": 2,
        "student": 1,
        "control": 1,
    }
    _, _, count, metric = FILES[case.name]
    for each in ("student", "control"):
        run = RunDir(str(output / each))
        assert run.result()[metric] == pytest.approx(results[each][metric], abs=1e-6)
        assert run.config()["task"]["kind"] == case.name
        assert len(predictions_of(run.path)) == count


@pytest.mark.slow
def test_at_its_full_depth_a_run_scores_as_before(case, tuned, capsys):
    if "depths" not in KINDS[case.name].options or not FINETUNING[case.name].has_depths:
        return
    depth.main(depth.DepthOptions(tuned.run_dir, tuned.data_dir, patience="", requests=1))
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in rows] == ["| depth 1", "| depth 2"]
    result = RunDir(tuned.run_dir).result()
    assert float(rows[1][1].split(" ")[0]) == pytest.approx(result[result["metric"]], abs=1e-4)


def test_every_kind_has_files_here():
    assert FILES.keys() == {each.name for each in CASES.values()}
