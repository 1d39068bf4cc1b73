"""The errors of a token classifier: scores by label, and wrong spans of every kind."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from albert_tf.runtime.report_text import markdown_table, shortened
from albert_tf.tasks.tokens.examples import TokenExample
from finetuning.datasets.dataset import Prediction
from finetuning.datasets.scores.entity_scores import counts_by_label
from finetuning.kinds.cards import mistakes

_AROUND = 40  # characters of the text on each side of a span
_NONE = "(none)"
Span = tuple[int, int]


def sections(predictions: Sequence[Prediction], examples: Sequence[TokenExample]) -> list[str]:
    """Return the sections of a model card about the predictions of labeled spans."""
    counts = counts_by_label(predictions, examples)
    cells = [
        (shortened(label), f"{figures.true:,}", f"{figures.predicted:,}")
        + tuple(f"{score:.4f}" for score in (figures.precision, figures.recall, figures.f1))
        for label, figures in counts.items()
    ]
    header = ("", "support", "predicted", "precision", "recall", "F1")
    wrong = [
        mistake
        for prediction, example in zip(predictions, examples, strict=True)
        for mistake in mistakes_of(prediction, example)
    ]
    worst = mistakes.worst_of_kinds(wrong, "text", "spans are wrong")
    return ["## Labels", markdown_table(header, cells), *worst]


def mistakes_of(prediction: Prediction, example: TokenExample) -> Iterator[mistakes.Row]:
    """Yield each wrong span once; a predicted and a true span that overlap are one mistake.

    They are `wrong label`, `wrong boundary`, `spurious` and `missed`; the rank is the probability.
    """
    known = {(begin, end): label for begin, end, label in example.entities or ()}
    given = {(entity["start"], entity["end"]): entity for entity in prediction["entities"]}
    missed = dict(known)
    for span, entity in given.items():
        if known.get(span) == entity["label"]:
            del missed[span]
    for span, entity in given.items():
        if known.get(span) == entity["label"]:
            continue
        right = span if span in missed else _overlapping(span, missed)
        label = missed.pop(right) if right else None
        kind = "wrong label" if right == span else "wrong boundary" if right else "spurious"
        yield mistakes.Row(
            _snippet(example.text, *(right or span)),
            _named(example.text, right, label),
            _named(example.text, span, entity["label"]),
            entity["score"],
            kind,
        )
    for span, label in missed.items():
        text = example.text
        yield mistakes.Row(_snippet(text, *span), _named(text, span, label), _NONE, 0.0, "missed")


def _overlapping(span: Span, spans: Iterable[Span]) -> Span | None:
    return next((other for other in spans if other[0] < span[1] and span[0] < other[1]), None)


def _snippet(text: str, begin: int, end: int) -> str:
    first, last = max(0, begin - _AROUND), min(len(text), end + _AROUND)
    return "…" * (first > 0) + text[first:last] + "…" * (last < len(text))


def _named(text: str, span: tuple[int, int] | None, label: Any) -> str:
    return f"{text[slice(*span)]} ({label})" if span else _NONE
