"""The errors of a run: scores by class, the confusion matrix, wrong predictions of every kind."""

import collections
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf import info
from albert_tf.tasks.multi_label.model import indicators, label_indices
from finetuning.datasets.multi_label_metrics import counts_by_label, predicted_labels
from finetuning.datasets.squad_metrics import score_answer
from finetuning.datasets.task import Prediction

_SHOWN = 10  # wrong predictions at most
_TEXT = 160  # characters of a text at most
_LABELS = 20  # labels of a confusion matrix at most
_NONE = "(no answer)"
_NO_LABEL = "(no label)"
_BY_LABEL = ("", "examples", "precision", "recall", "F1")


class Row(NamedTuple):
    """A prediction in words.

    Attributes:
      text: the text or the question.
      right: the correct answer.
      given: the predicted answer.
      rank: higher for worse mistakes: the confidence, or the error of a number.
    """

    text: str
    right: str
    given: str
    rank: float

    @property
    def kind(self) -> str:
        """The kind of a mistake."""
        if self.given == _NONE:
            return "missed answer"
        return "invented answer" if self.right == _NONE else "wrong span"


def sections(
    task: Mapping[str, Any], predictions: Sequence[Prediction], examples: Sequence[Any]
) -> list[str]:
    """Return the sections of a model card about the predictions.

    Args:
      task: the `task` section of the run's config.json.
      predictions: the predictions.
      examples: the examples with their answers.
    """
    rows = [_compared(task, *pair) for pair in zip(predictions, examples, strict=True)]
    if task["kind"] == "multi_label":
        table = by_label(task, predictions, examples)
        return ["## Labels", table, "## Worst mistakes", *worst(task["kind"], rows)]
    labels = task.get("labels") or []
    parts = []
    if labels:
        parts += ["## Classes", by_class(labels, rows)]
    if 0 < len(labels) <= _LABELS:
        parts += [
            "## Confusion",
            "Rows are correct labels, columns are predicted labels.",
            confusion(labels, rows),
        ]
    return [*parts, "## Worst mistakes", *worst(task["kind"], rows)]


def by_class(labels: Sequence[str], rows: Sequence[Row]) -> str:
    """Return a table of the precision, recall and F1 of each label, 0 where undefined."""
    right = collections.Counter(row.right for row in rows)
    given = collections.Counter(row.given for row in rows)
    both = collections.Counter(row.right for row in rows if row.right == row.given)
    cells = [_label_row(label, right[label], given[label], both[label]) for label in labels]
    return info.markdown_table(_BY_LABEL, cells)


def by_label(
    task: Mapping[str, Any], predictions: Sequence[Prediction], examples: Sequence[Any]
) -> str:
    """Return the same table for labels of which an example has any number, with the thresholds."""
    labels = task["labels"]
    counts = counts_by_label(
        indicators(examples, len(labels)), predicted_labels(predictions, labels)
    )
    cells = [
        (*_label_row(label, *map(int, numbers)), f"{threshold:.4f}")
        for label, threshold, *numbers in zip(labels, task["thresholds"], *counts, strict=True)
    ]
    return info.markdown_table((*_BY_LABEL, "threshold"), cells)


def _label_row(label: str, right: int, given: int, both: int) -> tuple[str, ...]:
    """Return a row from how many examples have, are predicted to have, and rightly have a label."""
    scores = both / max(1, given), both / max(1, right), 2 * both / max(1, given + right)
    return shortened(label), f"{right:,}", *(f"{each:.4f}" for each in scores)


def confusion(labels: Sequence[str], rows: Sequence[Row]) -> str:
    """Return the table of counts by correct and predicted label."""
    counts = collections.Counter((row.right, row.given) for row in rows)
    cells = [
        (shortened(right), *(str(counts[right, given]) for given in labels)) for right in labels
    ]
    return info.markdown_table(("", *map(shortened, labels)), cells)


def worst(kind: str, rows: Sequence[Row]) -> list[str]:
    """Return the number of mistakes of each kind, and a table of the worst ones of every kind."""
    wrong = sorted((row for row in rows if row.right != row.given), key=lambda row: -row.rank)
    counts = collections.Counter(row.kind for row in wrong)
    shown = itertools.islice(_in_turns(wrong), _SHOWN)
    if kind != "span":
        texts = [tuple(map(shortened, row[:3])) for row in shown]
        header = ("example", "correct", "predicted")
        return [info.markdown_table(header, texts) if texts else "There are none."]
    texts = [(shortened(row.text), row.kind, *map(shortened, row[1:3])) for row in shown]
    listed = ", ".join(f"{count:,} x {name}" for name, count in counts.most_common())
    return [
        f"{len(wrong):,} of {len(rows):,} answers do not match exactly: {listed or 'none'}.",
        info.markdown_table(("question", "mistake", "correct", "predicted"), texts),
    ]


def _in_turns(wrong: Sequence[Row]) -> Iterator[Row]:
    """Yield the first mistake of each kind, then the second of each, and so on."""
    kinds: dict[str, list[Row]] = {}
    for row in wrong:
        kinds.setdefault(row.kind, []).append(row)
    for turn in itertools.zip_longest(*kinds.values()):
        yield from filter(None, turn)


def _compared(task: Mapping[str, Any], prediction: Prediction, example: Any) -> Row:
    kind = task["kind"]
    if kind == "span":
        texts, answer = [text for _, text in example.answers], prediction["answer"]
        exact, _ = score_answer(answer, example, task["answerable"])
        right = answer if exact else texts[0] if texts else ""
        # Only mistakes of one kind are compared.
        rank = prediction["score"] if answer else prediction.get("null_score", 0.0)
        return Row(example.question, right or _NONE, answer or _NONE, rank)
    if kind == "multiple_choice":
        right, answer = example.options[example.label], example.options[prediction["choice"]]
        return Row(example.question, right, answer, max(prediction["probabilities"]))
    text = f"{example.first} ‖ {example.second}" if example.second else example.first
    if kind == "regressor":
        score = prediction["score"]
        return Row(text, f"{example.label:.2f}", f"{score:.2f}", abs(example.label - score))
    if kind == "multi_label":
        return _compared_labels(task["labels"], prediction, example, text)
    label = task["labels"][int(example.label)]
    return Row(text, label, prediction["label"], prediction["score"])


def _compared_labels(labels: Sequence[str], prediction: Prediction, example: Any, text: str) -> Row:
    """Return the row of two label sets, ranked by the largest error of a probability."""
    right, given = {labels[i] for i in label_indices(example)}, set(prediction["labels"])
    errors = [abs(prediction["probabilities"][name] - (name in right)) for name in right ^ given]

    def joined(names: set[str]) -> str:
        return ", ".join(name for name in labels if name in names) or _NO_LABEL

    return Row(text, joined(right), joined(given), max(errors, default=0.0))


def shortened(text: str) -> str:
    """Return a text as a cell of a table: one line, not too long, without bars."""
    text = " ".join(text.split())
    return cell(text if len(text) <= _TEXT else text[: _TEXT - 1] + "…")


def cell(text: str) -> str:
    """Escape bars, which would start another cell."""
    return text.replace("|", "\\|")
