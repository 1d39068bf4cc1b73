"""The errors of a token classifier: scores by label, and wrong spans of every kind."""

import collections
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from albert_tf.runtime.report_text import markdown_table, shortened
from albert_tf.tasks.tokens.examples import TokenExample
from finetuning.datasets.dataset import Prediction
from finetuning.datasets.scores.entity_scores import counts_by_label

_SHOWN = 12  # mistakes at most
_AROUND = 40  # characters of the text on each side of a span
_NONE = "(none)"
Span = tuple[int, int]


class Mistake(NamedTuple):
    """A wrong span.

    Attributes:
      kind: `wrong label`, `wrong boundary`, `spurious` or `missed`.
      text: the span in its text.
      right: the true span with its label.
      given: the predicted one.
      rank: its probability; 0 if it was missed.
    """

    kind: str
    text: str
    right: str
    given: str
    rank: float


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
    kinds = collections.Counter(mistake.kind for mistake in wrong)
    listed = ", ".join(f"{count:,} x {kind}" for kind, count in kinds.most_common())
    shown = [tuple(map(shortened, mistake[:4])) for mistake in _worst(wrong)]
    table = markdown_table(("mistake", "text", "correct", "predicted"), shown)
    return [
        "## Labels",
        markdown_table(header, cells),
        "## Worst mistakes",
        f"There are {len(wrong):,} mistakes: {listed}." if wrong else "There are none.",
        *([table] if shown else []),
    ]


def mistakes_of(prediction: Prediction, example: TokenExample) -> Iterator[Mistake]:
    """Yield each wrong span once; a predicted and a true span that overlap are one mistake."""
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
        yield Mistake(
            kind,
            _snippet(example.text, *(right or span)),
            _named(example.text, right, label),
            _named(example.text, span, entity["label"]),
            entity["score"],
        )
    for span, label in missed.items():
        text = example.text
        yield Mistake("missed", _snippet(text, *span), _named(text, span, label), _NONE, 0.0)


def _overlapping(span: Span, spans: Iterable[Span]) -> Span | None:
    return next((other for other in spans if other[0] < span[1] and span[0] < other[1]), None)


def _worst(wrong: Sequence[Mistake]) -> list[Mistake]:
    """Return the most confident mistake of each kind, then the second of each, and so on."""
    kinds: dict[str, list[Mistake]] = {}
    for mistake in sorted(wrong, key=lambda mistake: -mistake.rank):
        kinds.setdefault(mistake.kind, []).append(mistake)
    turns = itertools.chain.from_iterable(itertools.zip_longest(*kinds.values()))
    return list(itertools.islice(filter(None, turns), _SHOWN))


def _snippet(text: str, begin: int, end: int) -> str:
    first, last = max(0, begin - _AROUND), min(len(text), end + _AROUND)
    return "…" * (first > 0) + text[first:last] + "…" * (last < len(text))


def _named(text: str, span: tuple[int, int] | None, label: Any) -> str:
    return f"{text[slice(*span)]} ({label})" if span else _NONE
