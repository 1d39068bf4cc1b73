"""A short run of each kind of task but the classifier (`tuned`): from its files to a whole run."""

import json
import pathlib

import numpy as np
import pytest

from albert_tf.models.encoder import load_encoder
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.predictor import load_task_model
from finetuning import train
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Source
from tests.finetuning.datasets import race_test

RATE, STEPS = 1e-3, 2
VALUES = (
    "training.epochs=1",
    "training.batch_size=2",
    f"training.learning_rate={RATE}",
    "training.weight_decay_rate=0",
    "task.seq_length=32",
)


def write_prices(folder: pathlib.Path) -> None:
    rows = "text\tlabel\nan apple\t3\na saw and a file\t20.5\nhammer\t12\n"
    (folder / "train.tsv").write_text(rows + "pear\t2\n")
    (folder / "dev.tsv").write_text(rows)


def write_moods(folder: pathlib.Path) -> None:
    rows = 'text,label\nan apple,"red,sweet"\na saw,\na pear,sweet\n'
    (folder / "train.csv").write_text(rows + "a cherry,red\n")
    (folder / "dev.csv").write_text(rows)


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


def write_questions(folder: pathlib.Path) -> None:
    header = "question,context,option_a,option_b,option_c,label\n"
    rows = 'Which?,"An apple, red.",red,blue,,A\nWhat?,,saw,file,drill,drill\n'
    (folder / "train.csv").write_text(header + rows + rows.replace("W", "And w"))
    more = {"question": "Which?", "options": ["a", "b", "c", "d"], "label": "D"}
    (folder / "dev.jsonl").write_text(json.dumps(more) + "\n")


def write_race(folder: pathlib.Path) -> None:
    for part in ("train", "dev"):
        passages = [race_test.passage(f"{part} {number}") for number in (1, 2)]
        race_test.write(folder, f"{part}/middle/all.txt", passages)


def write_names(folder: pathlib.Path) -> None:
    for part in ("train", "dev"):
        names = ("Ann", "Bo", "Cy", "Di")
        rows = [f"The O\nking O\n{name} B-person\nMay I-person\n" for name in names]
        (folder / f"{part}.conll").write_text("\n".join(rows))


@pytest.mark.parametrize(
    ("name", "kind", "write", "count", "metric"),
    [
        ("text_regression", "regressor", write_prices, 3, "pearson"),
        ("multi_label", "multi_label", write_moods, 3, "macro_f1"),
        ("squad2", "span", write_squad, 4, "f1"),
        pytest.param(
            *("multiple_choice", "multiple_choice", write_questions, 1, "accuracy"),
            marks=pytest.mark.slow,
        ),
        ("race-middle", "multiple_choice", write_race, 4, "accuracy"),
        ("token_classification", "token_classifier", write_names, 4, "f1"),
    ],
)
def test_a_run_is_whole(name, kind, write, count, metric, start: str, tmp_path: pathlib.Path):
    data, run = tmp_path / "data", RunDir(str(tmp_path / "run"))
    data.mkdir()
    write(data)
    more = {
        "span": ("task.doc_stride=8", "task.query_length=8"),
        "token_classifier": ("task.doc_stride=8",),
    }.get(kind, ())
    train.main(
        train.FinetuneOptions(
            name,
            run.path,
            str(data),
            init=start,
            recipe="none",
            device="cpu",
            set=(*VALUES, *more),
        )
    )
    result, examples = run.result(), DATASETS[name].read(Source(str(data))).dev["dev"]
    assert run.config()["task"]["kind"] == kind and run.metrics()[-1]["step"] == STEPS
    assert (result["train_examples"], result["dev_examples"], len(examples)) == (4, count, count)
    assert result["metric"] == metric and -1 <= result[metric] <= 1 and np.isfinite(result["loss"])
    lines = pathlib.Path(run.predictions_path("dev")).read_text(encoding="utf-8").splitlines()
    answers = [json.loads(line)["prediction"] for line in lines]
    assert len(answers) == count
    assert DATASETS[name].score(answers, examples)[metric] == pytest.approx(
        result[metric], abs=1e-6
    )
    # Its weights are two steps of Adam away from the start's, but for those without a gradient.
    old, new = load_encoder(start), load_task_model(run.path).encoder
    moved = {
        weight.name: abs(weight - before).numpy().max()
        for before, weight in zip(old.weights, new.weights, strict=True)
    }
    still = {each for each, distance in moved.items() if distance == 0}
    is_without_pooler = kind in ("span", "token_classifier")
    assert all("pooler" in each for each in still) and bool(still) == is_without_pooler, still
    assert 0 < max(moved.values()) < 2 * STEPS * RATE
