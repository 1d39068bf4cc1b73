"""Thresholds chosen on training examples that were left out of training, mostly SQuAD 2.0's."""

import json
import pathlib
import random

import numpy as np
import pytest

from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.predictor import load_predictor
from albert_tf.tasks.spans.examples import SpanExample
from finetuning import ensemble, predict, train
from finetuning.datasets.selection import split
from finetuning.datasets.spans.squad import SQUAD, hold_out
from finetuning.kinds.registry import THRESHOLDS


def questions(contexts: int) -> list[SpanExample]:
    """Of each context one question that it answers, and one that it does not."""
    return [
        SpanExample(
            "?", f"context {i}", f"{i} {number}", () if number else ((0, "context"),), bool(number)
        )
        for i in range(contexts)
        for number in (0, 1)
    ]


def test_whole_contexts_are_left_out():
    every = questions(20)
    rest, held_out = hold_out(every, 0.25)
    assert sorted(rest + held_out, key=every.index) == every
    kept, left = ({each.context for each in part} for part in (rest, held_out))
    assert not kept & left and len(left) == 5
    assert len(hold_out(every, 0.1)[1]) == 4


def test_a_share_without_both_kinds_of_question():
    with pytest.raises(InputError, match=r"both parts. Received: 0.01, of 20 contexts"):
        hold_out(questions(20), 0.01)


def test_texts_are_left_out_whatever_the_dev_part_took():
    """The hash for thresholds is another one than for --dev_fraction."""
    every = [TextExample(f"text {i // 2}", label=(0,)) for i in range(2000)]
    rest, _ = split(every, 0.2)
    rest, held_out = THRESHOLDS["threshold"].hold_out(rest, 0.2)
    assert 0.15 < len(held_out) / (len(rest) + len(held_out)) < 0.25
    assert not {each.first for each in rest} & {each.first for each in held_out}
    unlabeled = [TextExample(str(i), label=()) for i in range(20)]
    with pytest.raises(InputError, match=r"texts with labels in both parts\. Received: 0.5, of 20"):
        THRESHOLDS["threshold"].hold_out(unlabeled, 0.5)


@pytest.mark.parametrize("per_label", [False, True])
def test_a_label_in_four_held_out_texts_has_the_common_threshold(per_label: bool):
    """Label a is in 5 of 10 texts, b in 4. The best threshold is 0.7 for a, and 0.45 for b.

    Together, right from 0.6 and wrong up to 0.5, it is 0.55.
    """
    examples = [TextExample("", label=(*[0] * (i < 5), *[1] * (i < 4))) for i in range(10)]
    pairs = [(0.9 if i < 5 else 0.5, 0.6 if i < 4 else 0.3) for i in range(10)]
    predictions = [{"probabilities": {"a": a, "b": b}} for a, b in pairs]
    rule = THRESHOLDS["threshold"]
    found = rule.best(predictions, examples, {}, per_label)
    assert found == pytest.approx((0.7, 0.55) if per_label else (0.55, 0.55))
    text = rule.describe(found, examples, 30, per_label)
    assert "the best for 10 texts held out of training (25.0% of 40)" in text
    fallen = "; 1 of 2 labels are in fewer than 5 of them and have the common threshold."
    assert text.endswith(fallen) == per_label


WORDS = "apple pear plum cherry melon hammer saw file drill".split()
VALUES = (
    "training.steps=4",
    "training.evaluate_every=4",
    "training.threshold_share=0.2",
    "task.seq_length=32",
    "task.doc_stride=8",
    "task.query_length=8",
)


@pytest.fixture(scope="module")
def squad(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng, folder = random.Random(0), tmp_path_factory.mktemp("threshold") / "squad2"
    folder.mkdir()
    for part, count in (("train", 40), ("dev", 10)):
        paragraphs = []
        for i in range(count):
            words = rng.sample(WORDS, 5)
            answer = {"text": words[2], "answer_start": len(" ".join(words[:2])) + 1}
            rows = {"question": "saw file", "is_impossible": bool(i % 2)}
            answers = [] if i % 2 else [answer]
            qas = [rows | {"id": f"{part} {i}", "answers": answers}]
            paragraphs.append({"context": " ".join(words), "qas": qas})
        text = json.dumps({"version": "v2.0", "data": [{"paragraphs": paragraphs}]})
        (folder / f"{part}-v2.0.json").write_text(text)
    return str(folder)


@pytest.fixture(scope="module")
def runs(start: str, squad: str, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("thresholds") / "runs"
    train.main(
        train.FinetuneOptions(
            "squad2", str(folder), squad, init=start, recipe="none", seeds=2, set=VALUES
        )
    )
    return folder


@pytest.mark.slow
def test_the_run_answers_with_what_was_best_for_them(
    runs: pathlib.Path, squad: str, start: str, capsys
):
    run, task = RunDir(str(runs / "seed-0")), SQUAD["squad2"]
    data = task.read(train.source_of(squad, False))
    _, held_out = hold_out(data.train, 0.2)
    result = run.result()
    assert (len(held_out), result["train_examples"]) == (8, 32)
    predictor = load_predictor(run.path)
    threshold = predictor.task.null_threshold
    scores = task.score(predictor(held_out), held_out)
    assert scores["best_threshold"] == pytest.approx(threshold, abs=1e-5) and threshold != 0
    assert scores["f1"] == pytest.approx(scores["best_f1"])
    # What is reported is of this threshold, whatever would have been best on the dev set.
    answers = task.score(predictor(data.dev["dev"]), data.dev["dev"])
    assert result["f1"] == pytest.approx(answers["f1"], abs=1e-6)
    capsys.readouterr()
    predict.main(
        predict.PredictOptions(
            run.path,
            data_dir=squad,
            part="dev",
            null_threshold=1e9,
            output=str(runs / "answers.jsonl"),
        )
    )
    rows = [json.loads(line) for line in open(runs / "answers.jsonl", encoding="utf-8")]
    assert all(each["answer"] for each in rows if each["n_best"])
    train.main(
        train.FinetuneOptions("squad2", run.path, squad, init=start, recipe="none", set=VALUES)
    )
    assert "already complete" in capsys.readouterr().out


@pytest.mark.slow
def test_members_with_thresholds_of_their_own(runs: pathlib.Path, squad: str, tmp_path):
    """The mean of what each one's null scores are above its threshold, against zero."""
    ensemble.main(
        ensemble.EnsembleOptions(
            (str(runs / "seed-*"),),
            str(tmp_path / "out"),
            squad,
            select="all",
        )
    )
    examples = SQUAD["squad2"].read(train.source_of(squad, False)).dev["dev"]
    members = [load_predictor(str(runs / f"seed-{i}")) for i in (0, 1)]
    above = np.mean(
        [
            [each["null_score"] - member.task.null_threshold for each in member(examples)]
            for member in members
        ],
        axis=0,
    )
    lines = (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()
    predictions = [json.loads(line)["prediction"] for line in lines]
    np.testing.assert_allclose([each["null_score"] for each in predictions], above, atol=1e-5)
    assert [each["answer"] == "" for each in predictions] == [value > 0 for value in above]


def test_other_tasks_have_none(start: str, fruit: str, tmp_path):
    with pytest.raises(ConfigError, match=r"threshold_share.*squad2.*kind 'classifier'"):
        train.main(
            train.FinetuneOptions(
                "text_classification",
                str(tmp_path / "run"),
                fruit,
                init=start,
                set=("training.threshold_share=0.1",),
            )
        )
