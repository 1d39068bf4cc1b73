"""A card lists what was answered wrongly, of every kind of task, the surest first."""

import pytest

from albert_tf.tasks.examples import ChoiceExample, SpanExample, TextExample
from finetuning.reporting.card import _mistakes

ONE, TWO = {"kind": "span", "answerable": False}, {"kind": "span", "answerable": True}
NONE = SpanExample("who?", "Jane wrote", is_impossible=True)
SPAN = SpanExample("who?", "Jane wrote", answers=((0, "Jane"),))
CHOICE = ChoiceExample("q", "c", ("x", "y"), 0)


@pytest.mark.parametrize(
    ("task", "example", "right", "wrong", "row"),
    [
        (
            ONE,
            SPAN,
            {"answer": "Jane", "score": 0.9},
            {"answer": "", "score": 0.0},
            "| who? | Jane | (no answer) |",
        ),
        (
            ONE,
            SPAN,
            {"answer": "the JANE.", "score": 0.9},
            {"answer": "Jane wrote", "score": 0.1},
            "| who? | Jane | Jane wrote |",
        ),  # as the scorer has it: case, articles, marks
        (
            TWO,
            NONE,
            {"answer": "", "score": 0.0},
            {"answer": "Jane", "score": 0.1},
            "| who? | (no answer) | Jane |",
        ),
        (
            {"kind": "multiple_choice"},
            CHOICE,
            {"choice": 0, "probabilities": [0.9, 0.1]},
            {"choice": 1, "probabilities": [0.2, 0.8]},
            "| q | x | y |",
        ),
        (
            {"kind": "regressor"},
            TextExample("a", "b", 2.0),
            {"score": 2.0},
            {"score": 4.5},
            "| a ‖ b | 2.00 | 4.50 |",
        ),
        (
            {"kind": "classifier", "labels": ["no", "yes"]},
            TextExample("a|b", label=1),
            {"label": "yes", "score": 0.9},
            {"label": "no", "score": 0.8},
            r"| a\|b | yes | no |",
        ),
    ],
)
def test_mistakes(task: dict, example: object, right: dict, wrong: dict, row: str):
    table = _mistakes(task, [right, wrong], [example, example])[-1]
    assert table.splitlines()[2:] == [row]


def test_a_label_with_a_bar_is_one_cell():
    task = {"kind": "classifier", "labels": ["a|b", "c"]}
    _, _, confusion, *_ = _mistakes(
        task, [{"label": "c", "score": 1.0}], [TextExample("x", label=0)]
    )
    assert confusion.splitlines()[0] == r"|  | a\|b | c |"
    assert confusion.splitlines()[2:] == [r"| a\|b | 0 | 1 |", "| c | 0 | 0 |"]
