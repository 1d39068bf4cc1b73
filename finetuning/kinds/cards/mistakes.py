"""Tables of a model card: scores by label, the confusion matrix, wrong predictions."""

import collections
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.runtime.report_text import markdown_table, shortened

_SHOWN = 10  # wrong predictions at most
_LABELS = 20  # labels of a confusion matrix at most
_BY_LABEL = ("", "examples", "precision", "recall", "F1")


class Row(NamedTuple):
    """A prediction in words.

    Attributes:
      text: the text or the question.
      right: the correct answer.
      given: the predicted answer.
      rank: higher for worse mistakes: the confidence, or the error of a number.
      name: a name for mistakes like this one, if there are several.
    """

    text: str
    right: str
    given: str
    rank: float
    name: str = ""


def of_classes(labels: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Return a table of the scores of each label and, for few labels, the confusion matrix."""
    right, given, both = (
        collections.Counter(names)
        for names in (
            (row.right for row in rows),
            (row.given for row in rows),
            (row.right for row in rows if row.right == row.given),
        )
    )
    counts = [np.array([count[label] for label in labels]) for count in (right, given, both)]
    parts = [by_label(labels, counts)]
    if len(labels) <= _LABELS:
        parts += [
            "## Confusion",
            "Rows are correct labels, columns are predicted labels.",
            confusion(labels, rows),
        ]
    return parts


def by_label(
    labels: Sequence[str],
    counts: Sequence[np.ndarray],
    more: Mapping[str, Sequence[float]] | None = None,
) -> str:
    """Return a table of the precision, recall and F1 of each label, 0 where undefined.

    Args:
      labels: the C labels.
      counts: how many examples have, are predicted to have, and rightly have each label, [C] each.
      more: further columns.
    """
    columns = more or {}
    cells = [
        (*_label_row(label, *map(int, numbers)), *(f"{value:.4f}" for value in values))
        for label, numbers, values in zip(
            labels,
            zip(*counts, strict=True),
            zip(*columns.values(), strict=True) if columns else itertools.repeat(()),
            strict=False,
        )
    ]
    return markdown_table((*_BY_LABEL, *columns), cells)


def _label_row(label: str, right: int, given: int, both: int) -> tuple[str, ...]:
    """Return a row from how many examples have, are predicted to have, and rightly have a label."""
    scores = both / max(1, given), both / max(1, right), 2 * both / max(1, given + right)
    return shortened(label), f"{right:,}", *(f"{score:.4f}" for score in scores)


def confusion(labels: Sequence[str], rows: Sequence[Row]) -> str:
    """Return the table of counts by correct and predicted label."""
    counts = collections.Counter((row.right, row.given) for row in rows)
    cells = [
        (shortened(right), *(str(counts[right, given]) for given in labels)) for right in labels
    ]
    return markdown_table(("", *map(shortened, labels)), cells)


def worst(rows: Sequence[Row]) -> list[str]:
    """Return the section of the worst mistakes."""
    texts = [tuple(map(shortened, row[:3])) for row in _shown(_wrong(rows))]
    header = ("example", "correct", "predicted")
    return ["## Worst mistakes", markdown_table(header, texts) if texts else "There are none."]


def worst_of_kinds(rows: Sequence[Row], text: str, what: str) -> list[str]:
    """Return the section of the worst mistakes of every name, with their numbers.

    `text` is the title of the texts' column; `what` says, after their number, what is wrong.
    """
    wrong = _wrong(rows)
    counts = collections.Counter(row.name for row in wrong)
    texts = [(shortened(row.text), row.name, *map(shortened, row[1:3])) for row in _shown(wrong)]
    listed = ", ".join(f"{count:,} x {name}" for name, count in counts.most_common())
    table = markdown_table((text, "mistake", "correct", "predicted"), texts)
    return [
        "## Worst mistakes",
        f"{len(wrong):,} {what}{':' * bool(wrong)} {listed}".strip() + ".",
        *([table] if texts else []),
    ]


def _wrong(rows: Sequence[Row]) -> list[Row]:
    return sorted((row for row in rows if row.right != row.given), key=lambda row: -row.rank)


def _shown(wrong: Sequence[Row]) -> Iterator[Row]:
    return itertools.islice(_in_turns(wrong), _SHOWN)


def _in_turns(wrong: Sequence[Row]) -> Iterator[Row]:
    """Yield the first mistake of each name, then the second of each, and so on."""
    kinds: dict[str, list[Row]] = {}
    for row in wrong:
        kinds.setdefault(row.name, []).append(row)
    for turn in itertools.zip_longest(*kinds.values()):
        yield from filter(None, turn)
