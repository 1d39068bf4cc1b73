"""Ensembles: means by hand, a whole one of RACE, and what is refused before anything is asked."""

import json
import pathlib
import re
import shutil
from typing import Any

import numpy as np
import pytest

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from albert_tf.tasks.predictor import load_predictor
from albert_tf.tasks.spans.model import SpanSettings
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Reading, Source
from finetuning.ensemble import EnsembleOptions, _Members, main
from finetuning.reporting.report import fingerprint
from tests.finetuning.untrained import leave_run, leave_weights


def test_scores_are_averaged():
    members = [np.array([1.0, 3.0]), np.array([2.0, -5.0])]
    np.testing.assert_allclose(KINDS["regressor"].average(members), [1.5, -1.0])


@pytest.fixture
def race(start: str, tmp_path: pathlib.Path) -> Source:
    """Data in RACE's layout, and two runs of them in `runs`."""
    for part in ("train", "dev", "test"):
        folder = tmp_path / "RACE" / part / "middle"
        folder.mkdir(parents=True)
        passage = {
            "article": "An apple, a pear and a saw.",
            "questions": ["Which?", "What is _?"],
            "options": [["an apple", "a saw", "a drill"], ["a pear", "a file", "it"]],
            "answers": ["A", "C"],
        }
        (folder / "1.txt").write_text(json.dumps(passage))
    source = Source(str(tmp_path / "RACE"))
    data = fingerprint(DATASETS["race-middle"].read(source))
    for seed in (1, 2):
        section = MultipleChoiceSettings(num_choices=3, seq_length=16 * seed)  # each its own
        run = leave_run(start, tmp_path / "runs" / str(seed), "race-middle", section, data)
        leave_weights(run, seed)
    return source


def test_a_run_counts_once(race: Source, tmp_path: pathlib.Path, capsys):
    runs = (str(tmp_path / "runs" / "*"), str(tmp_path / "runs" / "1"), str(tmp_path / "runs/2/"))
    main(EnsembleOptions(runs, str(tmp_path / "out"), race.data_dir, dry_run=True))
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "runs" / n) for n in "12"]
    with pytest.raises(InputError, match="at least two complete runs"):
        main(EnsembleOptions(runs[1:2] * 2, str(tmp_path / "out"), race.data_dir))


def test_unknown_characters_are_told(race: Source, tmp_path: pathlib.Path, capsys):
    section = MultipleChoiceSettings(num_choices=3, seq_length=16)
    run = str(tmp_path / "runs" / "1")
    examples = [ChoiceExample("红?", "楼", ("an apple", "a saw"))]
    _Members([run], section, 2).outputs(examples, "dev")
    note = (
        r"dev: .*% of the pieces are unknown to the vocabulary: 1 of 红 .*, 1 of 楼 .*Check that "
    )
    assert re.search(f"{note}{run} is for such text", capsys.readouterr().err)


@pytest.mark.slow
def test_an_ensemble_of_multiple_choice(race: Source, tmp_path: pathlib.Path):
    output, runs = tmp_path / "both", (str(tmp_path / "runs" / "*"),)

    def options(submission: pathlib.Path) -> EnsembleOptions:
        return EnsembleOptions(
            runs, str(output), race.data_dir, select="all", part="test", submission=str(submission)
        )

    (tmp_path / "none").touch()
    with pytest.raises(InputError, match="--submission must be a local file in a folder"):
        main(options(tmp_path / "none" / "test.tsv"))
    assert not output.exists()  # so that the same command can be given again
    main(options(output / "test.tsv"))
    examples = DATASETS["race-middle"].read(race).dev["dev"]
    members = [load_predictor(str(tmp_path / "runs" / name))(examples) for name in "12"]
    wanted = np.mean([[each["probabilities"] for each in member] for member in members], axis=0)
    lines = (output / "predictions.jsonl").read_text().splitlines()
    predictions = [json.loads(line)["prediction"] for line in lines]
    np.testing.assert_allclose([each["probabilities"] for each in predictions], wanted, atol=1e-5)
    choices = wanted.argmax(axis=1)
    assert [each["choice"] for each in predictions] == choices.tolist()
    result = json.loads((output / "result.json").read_text())
    assert result["ensemble"] == {"accuracy": np.mean(choices == [0, 2])}
    letters = [f"{i}\t{'ABC'[choice]}" for i, choice in enumerate(choices)]  # test is as dev is
    assert (output / "test.tsv").read_text().splitlines() == ["index\tprediction", *letters]


@pytest.mark.parametrize(("metric", "share"), [("best_f1", 0.0), ("best_f1", 0.1), ("f1", 0.0)])
def test_the_score_that_chose_the_weights_selects(
    metric: str, share: float, start: str, tmp_path: pathlib.Path, capsys
):
    """The threshold of the dev set is for a part only if the members have none of their own."""
    (tmp_path / "data").mkdir()
    answer = {"text": "apple", "answer_start": 3}
    paragraphs = [
        {
            "context": f"An apple, a pear and {number} saws.",
            "qas": [
                {
                    "id": f"{number}{i}",
                    "question": f"{'ab'[i]} {number}",
                    "answers": [answer][i:],
                    "is_impossible": i > 0,
                }
                for i in range(2)
            ],
        }
        for number in range(4)
    ]
    text = json.dumps({"version": "v2.0", "data": [{"title": "", "paragraphs": paragraphs}]})
    for part in ("train", "dev"):
        (tmp_path / "data" / f"{part}.json").write_text(text)
    source, dataset = Source(str(tmp_path / "data")), DATASETS["squad2"]
    data = fingerprint(dataset.read(source))
    for seed in (1, 2):
        section = SpanSettings(answerable=True, seq_length=32, doc_stride=16, query_length=8)
        run = leave_run(start, tmp_path / "runs" / str(seed), "squad2", section, data)
        leave_weights(run, seed)
        RunDir(run).finish({"metric": metric})
        config = RunDir(run).config() | {"training": {"threshold_share": share}}
        pathlib.Path(RunDir(run).config_path).write_text(json.dumps(config))
    runs, output = (str(tmp_path / "runs" / "*"),), tmp_path / "out"
    main(EnsembleOptions(runs, str(output), source.data_dir, part="dev"))
    result = json.loads((output / "result.json").read_text())
    assert result["metric"] == metric
    assert result["members"][0] == max(
        result["singles"], key=lambda run: result["singles"][run][metric]
    )
    lines = (output / "dev.jsonl").read_text().splitlines()
    answers = [json.loads(line)["prediction"] for line in lines]
    scores = dataset.score(answers, dataset.read(source).dev["dev"])
    is_best = metric == "best_f1" and not share
    assert scores["f1"] == pytest.approx(result["ensemble"]["best_f1" if is_best else "f1"])
    told = "at the null_threshold that is best for the dev set" in capsys.readouterr().out
    assert told == is_best


def test_a_pretraining_run_among_the_members(start: str, tmp_path: pathlib.Path):
    leave_run(start, tmp_path / "a", "squad1", SpanSettings())
    shutil.copytree(start, tmp_path / "b")
    RunDir(str(tmp_path / "b")).finish({})
    with pytest.raises(InputError, match="b' is not a fine-tuned run: its task is 'pretraining'"):
        main(EnsembleOptions((f"{tmp_path}/*",), str(tmp_path / "out"), "nowhere"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"doc_stride": 64}, "same task settings.*doc_stride: 128 != 64"),
        ({"n_best": 5}, "n_best: 20 != 5"),
        ({"answerable": True}, "same task .*'span', False.*'span', True"),
        ({"null_threshold": 1.0, "dropout": 0.0}, None),  # do not shape the spans
    ],
)
def test_members_whose_spans_do_not_fit(
    changes: dict[str, Any], words: str | None, start: str, tmp_path: pathlib.Path, capsys
):
    leave_run(start, tmp_path / "a", "squad1", SpanSettings())
    leave_run(start, tmp_path / "b", "squad1", SpanSettings(**changes))
    options = EnsembleOptions((f"{tmp_path}/?",), str(tmp_path / "out"), "nowhere", dry_run=True)
    if words is None:
        main(options)
        assert len(capsys.readouterr().out.splitlines()) == 2
        return
    with pytest.raises(InputError, match=words):
        main(options)


def test_members_have_their_own_temperatures(start: str, tmp_path: pathlib.Path, capsys):
    for name, temperature in (("a", 1.3), ("b", 1.7)):
        task = ClassifierSettings(("x", "y"), long_texts="mean", logit_temperature=temperature)
        leave_run(start, tmp_path / name, "text_classification", task)
    main(EnsembleOptions((f"{tmp_path}/?",), str(tmp_path / "out"), "nowhere", dry_run=True))
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_the_part_that_was_held_out_of_training(start: str, tmp_path: pathlib.Path):
    """Runs with --dev_fraction have no file of it."""
    rows = [f"text {i}\t{'xy'[i % 2]}" for i in range(40)]
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *rows]))
    source = Source(str(tmp_path), reading=Reading(dev_fraction=0.2))
    data = DATASETS["text_classification"].read(source)
    for seed in (1, 2):
        path, task = tmp_path / "runs" / str(seed), data.task.replace(seq_length=16)
        run = leave_run(start, path, "text_classification", task, fingerprint(data))
        leave_weights(run, seed)
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | {"reading": {"dev_fraction": 0.2}}))
    runs = (str(tmp_path / "runs" / "*"),)
    main(EnsembleOptions(runs, str(tmp_path / "out"), str(tmp_path), part="dev", select="all"))
    (file,) = (tmp_path / "out").glob("*dev*")
    assert len(file.read_text().splitlines()) == len(data.dev["dev"]) == 8
