"""SQuAD 2.0's scores on another part, which must not choose its threshold."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest

from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.spans.model import SpanSettings
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Data
from finetuning.reporting import paper_table
from finetuning.reporting.part_scores import scores_of

QUESTION = SpanExample("?", "x y z", answers=((0, "x y"),))
UNANSWERABLE = SpanExample("?", "x y z", is_impossible=True)


def span(null_score: float, text: str = "x y") -> dict[str, Any]:
    """An answer at threshold 0."""
    answer = text if null_score <= 0 else ""
    return {"answer": answer, "n_best": [{"text": text}], "null_score": null_score}


def of_own_contexts(examples: Sequence[SpanExample]) -> list[SpanExample]:
    return [
        dataclasses.replace(example, context=f"{example.context} {number}")
        for number, example in enumerate(examples)
    ]


@pytest.fixture
def result() -> dict[str, Any]:
    """Of 40 questions, a quarter each: an answer at 1, "x" of it at 2, "x y" and none at 3.

    At 0, the run's threshold, only the last quarter is right. At 1, dev's best, the first one is
    too. At 3, the best of these, the first and third are right and F1 of the second is 2/3.
    """
    predictions = [span(1.0), span(2.0, "x"), span(3.0), span(3.0)] * 10
    examples = of_own_contexts([QUESTION, QUESTION, QUESTION, UNANSWERABLE] * 10)
    data = Data(SpanSettings(answerable=True), [], {"test": examples})
    on_dev = {"metric": "best_f1", "best_f1": 0.9, "best_threshold": 1.0}
    return scores_of(DATASETS["squad2"], data, predictions, on_dev)


def test_the_threshold_is_the_run_s_or_that_of_dev(result: dict[str, Any]):
    assert result["metric"] == "f1_at_dev_threshold" and result["dev_examples"] == 40
    assert (result["f1"], result["exact_match"]) == (0.25, 0.25)
    assert result["f1_at_dev_threshold"] == result["exact_match_at_dev_threshold"] == 0.5
    names = ("f1", "exact_match", "f1_at_dev_threshold", "exact_match_at_dev_threshold")
    errors = [math.sqrt(p * (1 - p) / 39) for p in (0.25, 0.25, 0.5, 0.5)]
    assert result["standard_errors"] == pytest.approx(dict(zip(names, errors, strict=True)))
    assert result["baselines"] == dict.fromkeys(names, 0.25)  # never an answer
    assert result["baseline"] == 0.25
    assert result["standard_error"] == result["standard_errors"]["f1_at_dev_threshold"]
    assert not [name for name in (*result, *result["baselines"]) if name.startswith("best_")]


def test_the_table_of_a_part_has_both(result: dict[str, Any]):
    results = {("bag-of-words", "squad2"): [result]}
    lines = paper_table.table_of(["bag-of-words"], ["squad2"], results, "", "test").splitlines()
    header, _, row, constant, count = [line.strip("| ").split(" | ") for line in lines]
    assert header[2:5] == ["squad2", "squad2, own threshold", "Avg"]
    assert row[2:5] == ["50.0 ± 8.0/50.0 ± 8.0", "25.0 ± 6.9/25.0 ± 6.9", "50.0"]
    assert constant[2:4] == ["25.0/25.0", "25.0/25.0"] and count[:3] == ["test examples", "", "40"]


def test_other_tasks_have_no_threshold():
    predictions = [span(0.0)] * 40
    data = Data(SpanSettings(answerable=False), [], {"test": of_own_contexts([QUESTION] * 40)})
    found = scores_of(DATASETS["squad1"], data, predictions, {"metric": "f1", "f1": 0.3})
    assert (found["metric"], found["f1"], found["standard_error"]) == ("f1", 1.0, 0.0)
