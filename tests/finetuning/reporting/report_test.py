"""Standard errors by hand, and what is known of an example."""

import dataclasses
import json
from collections.abc import Sequence

import pytest

from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.examples import Example, TextExample
from albert_tf.tasks.multi_label.model import MultiLabelSettings
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.spans.model import SpanSettings
from albert_tf.tasks.tokens.examples import TokenExample
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Data
from finetuning.kinds.registry import FINETUNING
from finetuning.reporting.report import (
    at_default,
    baselines_of,
    empty_note,
    fingerprint,
    line,
    result_of,
    scores_if_known,
    summarize,
    write_predictions,
)

ONE, TWO = DATASETS["squad1"], DATASETS["squad2"]
QUESTION = SpanExample("?", "x y z", answers=((0, "x y"),))


def span(answer: str) -> dict:
    return {"answer": answer, "n_best": [{"text": answer}], "null_score": 0.0}


def about(examples: Sequence[SpanExample], contexts: int) -> list[SpanExample]:
    """The examples, in turn about so many contexts."""
    return [
        dataclasses.replace(example, context=f"x y z {number % contexts}")
        for number, example in enumerate(examples)
    ]


@pytest.mark.parametrize("task", [ONE, TWO])
def test_the_error_of_f1_is_that_of_the_mean_over_answers(task):
    """F1 of x for x y: 2 * 1 * 0.5 / 1.5 = 2/3. Of 2/3 and 1 the deviation is 1/6.

    Of exact match, 0 and 1, it is 1/2. Of 100 contexts with a question each, the error is the
    deviation over sqrt(99).
    """
    questions = about([QUESTION] * 100, 100)
    alike = FINETUNING["span"].standard_errors(task, [span("x")] * 100, questions)
    assert alike["f1"] == pytest.approx(0.0, abs=1e-12)
    errors = FINETUNING["span"].standard_errors(task, [span("x"), span("x y")] * 50, questions)
    assert list(errors) == list(task.metrics)
    assert errors["f1"] == pytest.approx(1 / 6 / 99**0.5)
    assert errors["exact_match"] == pytest.approx(1 / 2 / 99**0.5)


def test_answers_about_one_context_go_right_together():
    """Of 40 contexts with four questions, every other one has all four right.

    Each differs from the mean of 2 right ones by 2: sqrt(40 / 39 * 40 * 4) / 160 = 1/2 / sqrt(39).
    With two right in each, none differs.
    """
    tuned, questions = FINETUNING["span"], about([QUESTION] * 160, 40)
    together = [span("x y"), span("z")] * 80
    assert tuned.standard_errors(ONE, together, questions)["exact_match"] == pytest.approx(
        0.5 / 39**0.5
    )
    evenly = [span("x y")] * 80 + [span("z")] * 80
    assert tuned.standard_errors(ONE, evenly, questions)["exact_match"] == 0.0
    assert tuned.standard_errors(ONE, together, about(questions, 29)) == {}


def test_questions_of_multiple_choice_about_one_context_go_right_together():
    """As above: in every other one of 40 contexts, all four questions are right.

    Without contexts, the questions are the sources: all alike, they are one.
    """
    tuned, race = FINETUNING["multiple_choice"], DATASETS["race"]
    choices = [{"choice": 0}, {"choice": 1}] * 80
    question = ChoiceExample("q", "", ("a", "b"), label=0)
    examples = [dataclasses.replace(question, context=str(n % 40)) for n in range(160)]
    errors = tuned.standard_errors(race, choices, examples)
    assert errors["accuracy"] == pytest.approx(0.5 / 39**0.5)
    alone = [dataclasses.replace(question, question=str(n)) for n in range(160)]
    errors = tuned.standard_errors(race, choices, alone)
    assert errors["accuracy"] == pytest.approx(0.5 / 159**0.5)
    assert tuned.standard_errors(race, choices, [question] * 160) == {}


@pytest.mark.parametrize("task", [ONE, TWO])
def test_the_error_of_a_difference_has_contexts_as_clusters(task):
    """To answers that are all wrong, the differences are the scores; to equal ones they are 0."""
    tuned, questions = FINETUNING["span"], about([QUESTION] * 160, 40)
    together, wrong = [span("x y"), span("z")] * 80, [span("z")] * 160
    alone = tuned.standard_errors(task, together, questions)
    assert alone["exact_match"] == pytest.approx(0.5 / 39**0.5)
    assert tuned.standard_errors(task, together, questions, wrong) == pytest.approx(alone)
    none = tuned.standard_errors(task, together, questions, together)
    assert none == dict.fromkeys(task.metrics, 0.0)


def test_the_error_at_the_best_threshold_is_that_of_the_answers_given_there():
    """Null scores 0, 1, 2, 3 and a last question without an answer: best answered up to 2.

    F1 is then 1, 2/3, 1, 1, of deviation 1/sqrt(48); at the run's threshold 0 it was 1, 0, 0, 1.
    All of it 25 times, about 100 contexts.
    """
    texts = ["x y", "x", "x y", "x"]
    given = [span(text) | {"null_score": float(i)} for i, text in enumerate(texts)]
    given = [{**each, "answer": each["answer"] if i == 0 else ""} for i, each in enumerate(given)]
    questions = [QUESTION] * 3 + [SpanExample("?", "x y z", is_impossible=True)]
    errors = FINETUNING["span"].standard_errors(TWO, given * 25, about(questions * 25, 100))
    assert errors["best_f1"] == pytest.approx(1 / 48**0.5 / 99**0.5)
    assert errors["f1"] == pytest.approx(0.5 / 99**0.5)


def test_the_error_of_an_accuracy_is_binomial():
    """30 of 40 right: sqrt(0.75 * 0.25 / 40)."""
    errors = FINETUNING["classifier"].standard_errors(DATASETS["rte"], *labelled("1110" * 10))
    assert errors == {"accuracy": pytest.approx((0.75 * 0.25 / 40) ** 0.5)}


def labelled(given: str) -> tuple[list[dict], list[TextExample]]:
    """Predictions of 0 and 1 for examples that are all 1."""
    answers = [{"label": label, "probabilities": {"0": 0.5, "1": 0.5}} for label in given]
    return answers, [TextExample("", "", 1)] * len(given)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("1" * 28 + "0", "0.9655 over 29"),
        ("1" * 29 + "0", "0.9667 ± 0.0328 over 30"),  # sqrt(29 / 30 * 1 / 30 / 30)
        ("1" * 30, "1.0000 over 30"),
    ],
)
def test_few_examples_and_equal_answers_have_no_error(given: str, text: str):
    """The number of examples is told in any case."""
    task, (answers, examples) = DATASETS["rte"], labelled(given)
    data = Data(task.section, examples, {"dev": examples})
    rows = [{"step": 1.0, "dev/accuracy": 1.0, "seconds": 1.0}]
    parts = {"dev": (task.score(answers, examples), answers)}
    result = {**result_of(task, data, parts, rows, "accuracy", 1), "training_precision": "float32"}
    assert ("standard_error" in result) == ("standard_errors" in result) == (len(given) == 30)
    constant = "a constant answer, chosen in training: 1.0000"
    assert line("classifier", result) == f"dev accuracy {text} examples ({constant})"


def test_weights_chosen_on_the_scored_examples_are_named():
    result = {"metric": "f1", "f1": 0.5, "dev_examples": 1000, "baseline": 0.25, "evaluations": 5}
    score, constant = (
        "dev f1 0.5000 over 1,000 examples",
        "(a constant answer, chosen in training: ",
    )
    assert line("span", result) == f"{score}, the best of 5 evaluations on them {constant}0.2500)"
    assert line("span", result | {"evaluations": 1}) == f"{score} {constant}0.2500)"


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
def test_examples_with_known_answers(example: Example, known: bool):
    assert example.is_known is known


def test_scores_are_given_where_every_answer_is_known():
    known = [QUESTION, SpanExample("?", "x", is_impossible=True)]
    text = scores_if_known(TWO, [span("x y"), span("")], known)
    assert (text or "").startswith("f1 1.0000, exact_match 1.0000")
    # At the best threshold of these very examples, which a part to report must not choose.
    _, chosen = (text or "").split("; chosen on these same examples: ")
    names = [each.split()[0] for each in chosen.split(", ")]
    assert names == [*TWO.metrics[2:], "best_exact_match", "best_threshold"]
    assert "chosen" not in (scores_if_known(ONE, [span("x y")], [QUESTION]) or "")
    assert scores_if_known(TWO, [span("x y"), span("")], [QUESTION, SpanExample("?", "x")]) is None


def test_the_baseline_of_label_sets():
    """Labels of at least half of the training examples, or else the most frequent one.

    The sets are (a, b), (b), () and (b, c): b is in 3 of 4, a and c in 1. With two empty sets more
    it is in half. With a third it is the most frequent one. On dev, b is right once of twice, and
    a is missed once.
    """
    task = MultiLabelSettings(("a", "b", "c"))
    sets: list[tuple[int, ...]] = [(0, 1), (1,), (), (1, 2)]
    dev = [TextExample("", label=label) for label in ((1,), (0,))]
    for more, words in ((0, "labels of at least half"), (2, "labels of"), (3, "most frequent")):
        train = [TextExample("", label=label) for label in sets + [()] * more]
        data = Data(task, train, {"dev": dev})
        constant = FINETUNING[data.task.kind].constant_answer(data)
        assert constant and constant[0].startswith("always `b`, the ") and words in constant[0]
        assert constant[1]["labels"] == ["b"]
        assert constant[1]["probabilities"]["a"] == pytest.approx(1 / (4 + more))
        assert baselines_of(DATASETS["multi_label"], data, "dev") == pytest.approx(
            {"macro_f1": 2 / 9, "micro_f1": 1 / 2, "average_precision": 1 / 3}
        )
    both = Data(task, [TextExample("", label=(0, 1))] * 2, {"dev": dev})
    assert (FINETUNING[both.task.kind].constant_answer(both) or [""])[0].startswith(
        "always `a` and `b`, the labels of"
    )


def test_scores_at_the_default_threshold():
    """Above 0.5 is only a, once right and once wrong; b is missed: F1 is 2/3 and 0, and 2/4."""
    section = MultiLabelSettings(("a", "b"), (0.2, 0.1))
    answers = [{"labels": ["a", "b"], "probabilities": {"a": 0.6, "b": 0.5}}] * 2
    examples = [TextExample("", label=label) for label in ((0,), (1,))]
    task = DATASETS["multi_label"]
    found = at_default(task, section, answers, examples)
    assert found == pytest.approx({"macro_f1": 1 / 3, "micro_f1": 1 / 2})
    result = {"metric": "macro_f1", "dev_examples": 2, **task.score(answers, examples)}
    result["training_precision"] = "float32"
    text = line("multi_label", result | {"at_default_threshold": found})
    assert "chosen thresholds macro_f1 0.6667 (at 0.5: 0.3333), micro_f1 0.6667 (at 0.5: 0." in text


@pytest.mark.parametrize(
    ("precision", "clause"),
    [
        ("mixed_bfloat16", ", computed in float32 (during training: mixed_bfloat16)"),
        ("float32", ""),
    ],
)
def test_another_precision_than_in_training_is_named(precision: str, clause: str):
    result = {"metric": "f1", "f1": 0.5, "dev_examples": 2, "training_precision": precision}
    assert line("span", result) == f"dev f1 0.5000 over 2 examples{clause}"


def test_a_model_that_predicts_nothing_is_noted():
    nothing: list[dict] = [{"labels": [], "entities": [], "label": ""}] * 2
    texts = [TextExample("a", label=()), TextExample("a", label=(1,))]
    tokens = [TokenExample("a", None, ()), TokenExample("a", None, ((0, 1, "x"),))]
    for kind, key, examples in (
        ("multi_label", "labels", texts),
        ("token_classifier", "entities", tokens),
    ):
        note = empty_note(kind, nothing, examples, 7) or ""
        assert f"predicts no {key} for any of the 2 dev examples. Probably 7 steps" in note
        assert ("training.threshold_share" in note) == (kind == "multi_label")
        one = [nothing[0], {key: ["x"]}]
        assert empty_note(kind, one, examples, 7) is None
        assert empty_note(kind, nothing, examples[:1] * 2, 7) is None  # which is right
    assert empty_note("classifier", nothing, texts, 7) is None


def test_names_of_labels_in_predictions(tmp_path):
    examples = [TextExample("x", label=label) for label in ((0, 2), (), None)]
    answer = {"labels": ["b"], "probabilities": dict.fromkeys("abc", 0.5)}
    task = MultiLabelSettings(("a", "b", "c"))
    write_predictions(str(tmp_path / "out.jsonl"), task, [answer] * 3, examples)
    rows = [json.loads(line)["example"] for line in (tmp_path / "out.jsonl").open()]
    assert [row["label"] for row in rows] == [["a", "c"], [], None]


def test_the_baseline_is_one_and_the_same_answer():
    """Of three training examples two have the second label or the last choice."""

    def baseline(name: str, data: Data) -> tuple[str, dict[str, float]]:
        constant = FINETUNING[data.task.kind].constant_answer(data)
        return constant[0] if constant else "", baselines_of(DATASETS[name], data, "dev")

    texts = [TextExample("", "", label) for label in (1, 0, 1)]
    words, scores = baseline("mrpc", Data(DATASETS["mrpc"].section, texts, {"dev": texts[:2]}))
    assert words == "always `1`, the most frequent label in training"
    assert scores == {"accuracy": 0.5, "f1": pytest.approx(2 / 3)}
    choices = [ChoiceExample("q", "c", tuple("wxyz"), label) for label in (3, 3, 0)]
    words, scores = baseline("race", Data(MultipleChoiceSettings(), choices, {"dev": choices}))
    assert words.startswith("always option D") and scores == {"accuracy": pytest.approx(2 / 3)}
    scored = [TextExample("", "", score) for score in (1.0, 2.5)]
    words, scores = baseline("sts-b", Data(DATASETS["sts-b"].section, scored, {"dev": scored}))
    assert words.startswith("always 1.75, the mean") and scores == {"pearson": 0.0, "spearman": 0.0}
    empty = SpanExample("?", "x", is_impossible=True)
    questions = [QUESTION, empty, empty, empty]
    squad = Data(SpanSettings(answerable=True), [QUESTION], {"dev": questions})
    words, scores = baseline("squad2", squad)
    assert (
        words == "no answer to any question"
        and set(scores.values()) == {0.75}
        and "best_f1" in scores
    )
    answered = Data(SpanSettings(answerable=False), [], {"dev": [QUESTION]})
    assert baseline("squad1", answered) == ("", {})


def test_the_constant_answer_may_be_an_option_that_a_question_lacks():
    """Options C and A are right once in training, C first; in dev C is right once of 3."""
    two, three, four = (
        ChoiceExample("?", "", tuple("wxyz"[:count]), label)
        for count, label in ((2, 0), (3, 2), (4, 3))
    )
    data = Data(MultipleChoiceSettings(num_choices=3), [three, two], {"dev": [three, two, four]})
    words, _ = FINETUNING["multiple_choice"].constant_answer(data) or ("", {})
    assert words.startswith("always option C")
    scores = baselines_of(DATASETS["multiple_choice"], data, "dev")
    assert scores == {"accuracy": pytest.approx(1 / 3)}


def test_rare_labels_that_a_resample_lacks_do_not_count():
    """A perfect classifier has no error, even if each label has two texts."""
    names = tuple(f"label {number}" for number in range(20))
    examples = [TextExample("a", label=(i % 20,) if i < 40 else ()) for i in range(100)]
    predictions = []
    for example in examples:
        probabilities = {name: float(i in example.label) for i, name in enumerate(names)}
        chosen = [name for name, value in probabilities.items() if value]
        predictions.append({"labels": chosen, "probabilities": probabilities})
    errors = FINETUNING["multi_label"].standard_errors(
        DATASETS["multi_label"], predictions, examples
    )
    assert errors == pytest.approx(dict.fromkeys(errors, 0.0), abs=1e-12) and len(errors) == 3


def test_a_fingerprint_changes_with_the_part_of_an_example():
    texts = [TextExample(f"text {i}", label=0) for i in range(4)]
    task = ClassifierSettings(labels=("a", "b"))
    found = {fingerprint(Data(task, texts[:cut], {"dev": texts[cut:]})) for cut in (1, 2, 3)}
    assert len(found) == 3
    assert fingerprint(Data(task, texts[:1], {"test": texts[1:]})) not in found


def test_the_summary_of_seeds_by_hand(tmp_path):
    """The mean of 0.5, 0.6 and 1 is 0.7; the squares of the distances to it are 0.14 in all."""
    results = [{"accuracy": value, "seconds": 1.0, "steps": 3} for value in (1.0, 0.5, 0.6)]
    figures = {"median": 0.6, "mean": 0.7, "stdev": (0.14 / 2) ** 0.5, "min": 0.5, "max": 1.0}
    table = summarize(str(tmp_path), results).splitlines()
    every = json.loads((tmp_path / "seeds.json").read_text())
    assert every["accuracy"].pop("seeds") == [1.0, 0.5, 0.6]
    assert every == {"accuracy": pytest.approx(figures)}
    assert table[0] == "| 3 seeds | median | mean | stdev | min | max |"
    assert table[2:] == ["| accuracy | 0.6000 | 0.7000 | 0.2646 | 0.5000 | 1.0000 |"]
