"""Standard errors by hand, and what is known of an example."""

import pytest

from albert_tf.tasks.examples import ChoiceExample, SpanExample, TextExample
from albert_tf.tasks.multiple_choice import MultipleChoiceTask
from albert_tf.tasks.spans.model import SpanTask
from finetuning.datasets import TASKS
from finetuning.datasets.metrics import is_known
from finetuning.datasets.task import Data
from finetuning.reporting.report import baseline_of, scores_if_known, standard_error

ONE, TWO = TASKS["squad1"], TASKS["squad2"]
QUESTION = SpanExample("?", "x y z", answers=((0, "x y"),))


def span(answer: str) -> dict:
    return {"answer": answer, "n_best": [{"text": answer}], "null_score": 0.0}


@pytest.mark.parametrize("task", [ONE, TWO])
def test_of_f1_it_is_the_deviation_of_each_answer_s(task):
    """F1 of x for x y: 2 * 1 * 0.5 / 1.5 = 2/3. Of 2/3 and 1 the deviation is 1/6."""
    alike = standard_error(task, "span", "f1", [span("x")] * 100, [QUESTION] * 100)
    assert alike == pytest.approx(0.0, abs=1e-12)
    error = standard_error(task, "span", "f1", [span("x"), span("x y")] * 2, [QUESTION] * 4)
    assert error == pytest.approx(1 / 6 / 2)


def test_at_the_best_threshold_it_is_that_of_the_answers_given_there():
    """Null scores 0, 1, 2, 3 and a last question without an answer: best answered up to 2.

    F1 is then 1, 2/3, 1, 1, of deviation 1/sqrt(48); at the run's threshold 0 it was 1, 0, 0, 1.
    """
    texts = ["x y", "x", "x y", "x"]
    given = [span(text) | {"null_score": float(i)} for i, text in enumerate(texts)]
    given = [{**each, "answer": each["answer"] if i == 0 else ""} for i, each in enumerate(given)]
    questions = [QUESTION] * 3 + [SpanExample("?", "x y z", is_impossible=True)]
    error = standard_error(TWO, "span", "best_f1", given, questions)
    assert error == pytest.approx(1 / 48**0.5 / 2)
    assert standard_error(TWO, "span", "f1", given, questions) == pytest.approx(0.5 / 2)


def test_of_an_accuracy_it_is_binomial():
    """3 of 4 right: sqrt(0.75 * 0.25 / 4)."""
    answers = [{"label": label, "probabilities": {"0": 0.5, "1": 0.5}} for label in "1110"]
    error = standard_error(
        TASKS["rte"], "classifier", "accuracy", answers, [TextExample("", "", 1)] * 4
    )
    assert error == pytest.approx((0.75 * 0.25 / 4) ** 0.5)


@pytest.mark.parametrize(
    ("example", "known"),
    [
        (TextExample("a"), False),
        (TextExample("a", label=0), True),
        (ChoiceExample("q", "c", ("x", "y")), False),
        (ChoiceExample("q", "c", ("x", "y"), 0), True),
        (SpanExample("q", "c"), False),
        (SpanExample("q", "c", is_impossible=True), True),
        (SpanExample("q", "c", answers=((0, "c"),)), True),
    ],
)
def test_what_is_known(example: object, known: bool):
    assert is_known(example) is known


def test_scores_are_given_where_every_answer_is_known():
    known = [QUESTION, SpanExample("?", "x", is_impossible=True)]
    text = scores_if_known(TWO, [span("x y"), span("")], known)
    assert (text or "").startswith("f1 1.0000, exact_match 1.0000")
    assert scores_if_known(TWO, [span("x y"), span("")], [QUESTION, SpanExample("?", "x")]) is None


def test_the_baseline_is_one_and_the_same_answer():
    """Of three training examples two have the second label or choice."""
    labelled = [TextExample("", "", label) for label in (1, 0, 1)]
    rte = Data(TASKS["rte"].section, labelled, {"dev": labelled[:2]})
    assert baseline_of(TASKS["rte"], rte, "dev", "accuracy") == 0.5
    choices = [ChoiceExample("q", "c", tuple("wxyz"), label) for label in (3, 3, 0)]
    race = Data(MultipleChoiceTask(), choices, {"dev": choices})
    assert baseline_of(TASKS["race"], race, "dev", "accuracy") == pytest.approx(2 / 3)
    empty = SpanExample("?", "x", is_impossible=True)
    squad = Data(SpanTask(answerable=True), [QUESTION], {"dev": [QUESTION, empty, empty, empty]})
    assert baseline_of(TWO, squad, "dev", "f1") == 0.75
    assert (
        baseline_of(ONE, Data(SpanTask(answerable=False), [], {"dev": [QUESTION]}), "dev", "f1")
        is None
    )
