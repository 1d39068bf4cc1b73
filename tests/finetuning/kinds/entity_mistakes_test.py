"""Tests of the model card's part on token classification."""

from albert_tf.tasks.tokens.examples import TokenExample
from finetuning.kinds.cards.entity_mistakes import mistakes_of, sections

TEXT = "Ann Lee and Bo met Cy in York"
EXAMPLE = TokenExample(
    TEXT, None, ((0, 7, "person"), (12, 14, "person"), (19, 21, "person"), (25, 29, "place"))
)


def prediction(*spans):
    names = ("start", "end", "label", "score")
    return {"entities": [dict(zip(names, span, strict=True)) for span in spans]}


def test_each_wrong_span_is_one_mistake():
    found = prediction(
        (0, 3, "person", 0.9),  # a part of Ann Lee
        (12, 14, "place", 0.8),  # Bo
        (15, 18, "person", 0.7),  # met
        (25, 29, "place", 0.6),  # right
    )
    mistakes = {each.name: each for each in mistakes_of(found, EXAMPLE)}
    assert set(mistakes) == {"wrong boundary", "wrong label", "spurious", "missed"}
    assert mistakes["wrong boundary"][1:4] == ("Ann Lee (person)", "Ann (person)", 0.9)
    assert mistakes["wrong label"][1:4] == ("Bo (person)", "Bo (place)", 0.8)
    assert mistakes["spurious"][1:4] == ("(none)", "met (person)", 0.7)
    assert mistakes["missed"][1:4] == ("Cy (person)", "(none)", 0.0)
    # Two predicted spans in one true span: one has a wrong boundary, the other is spurious.
    kinds = [m.name for m in mistakes_of(prediction((0, 3, "a", 1), (4, 7, "a", 1)), EXAMPLE)]
    assert kinds.count("wrong boundary") == 1 and kinds.count("spurious") == 1
    assert kinds.count("missed") == 3


def test_sections():
    text = "\n".join(sections([prediction((25, 29, "place", 0.6))], [EXAMPLE]))
    assert "|  | support | predicted | precision | recall | F1 |" in text
    assert "| person | 3 | 0 | 0.0000 | 0.0000 | 0.0000 |" in text
    assert "| place | 1 | 1 | 1.0000 | 1.0000 | 1.0000 |" in text
    assert "3 spans are wrong: 3 x missed." in text
    right = prediction(*((*span, 0.5) for span in EXAMPLE.entities))
    assert sections([right], [EXAMPLE])[-1] == "0 spans are wrong."
    long = TokenExample("x" * 200 + " Ann " + "y" * 200, None, ((201, 204, "person"),))
    (mistake,) = mistakes_of(prediction(), long)
    assert mistake.text == "…" + "x" * 39 + " Ann " + "y" * 39 + "…"
