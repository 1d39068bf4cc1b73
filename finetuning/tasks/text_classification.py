"""A user's own table: `train` and `dev`, as .tsv, .csv or .jsonl, with texts and labels."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.errors import InputError, InputNotFoundError
from albert_tf.tasks.classifier import ClassifierTask
from albert_tf.tasks.examples import TextExample
from finetuning import metrics
from finetuning.tables import FORMATS, Table, find, open_table, write_predictions
from finetuning.task import Data, Prediction, Source

SINGLE, PAIR = ("text",), ("text_a", "text_b")


class TextClassification:
    """Texts (column `text`) or pairs (`text_a`, `text_b`) with any set of labels (`label`).

    The labels are those of the training part, in the order of their names. A part to predict,
    such as `test`, may have no column `label`.
    """

    metrics: tuple[str, ...] = ("accuracy", "macro_f1")
    recipe: Mapping[str, Any] = {}

    def read(self, source: Source) -> Data:
        """See `finetuning.task.Task`. Prints how frequent each label is."""
        table = _open(source, "train")
        texts = _text_columns(table)
        rows = [cells for _, cells in table.select((*texts, "label"))]
        counts = collections.Counter(cells[-1] for cells in rows)
        if len(counts) < 2:
            raise InputError(
                f"{table.path} must hold at least two labels. Received: {', '.join(counts)}."
            )
        task = ClassifierTask(pair=texts == PAIR, labels=tuple(sorted(counts)))
        train = [_example(cells[:-1], task.labels.index(cells[-1])) for cells in rows]
        dev = _read(_open(source, "dev"), task, answered=True)
        for part, examples in {"train": train, "dev": dev}.items():
            print(f"{part}: {_balance(examples, task.labels)}")
        return Data(task, train, {"dev": dev})

    def read_part(self, source: Source, part: str, task: ClassifierTask) -> list[TextExample]:
        """See `finetuning.task.Task`; the part is the name of the file."""
        table = _open(source, part)
        return _read(table, task, answered="label" in table.columns)

    def score(
        self, predictions: Sequence[Prediction], examples: Sequence[TextExample]
    ) -> dict[str, float]:
        """See `finetuning.task.Task`."""
        return metrics.score_labels(self.metrics, predictions, examples)

    def write_submission(
        self, path: str, predictions: Sequence[Prediction], examples: Sequence[TextExample]
    ) -> None:
        """Writes `index`, from 0 on, and `prediction`, the label's name."""
        write_predictions(path, [each["label"] for each in predictions])


def _open(source: Source, part: str) -> Table:
    if source.tfds:
        raise InputError("--tfds: text_classification reads files. Pass --data_dir alone.")
    try:
        return open_table(find(source.data_dir or "", [part + end for end in FORMATS]))
    except InputNotFoundError as error:
        if part != "dev":
            raise
        raise InputNotFoundError(
            f"{error} Move about a tenth of the training rows there, chosen at random, below the "
            "same header: what training never sees shows how good it is."
        ) from None


def _text_columns(table: Table) -> tuple[str, ...]:
    """`text`, unless the columns are those of a pair."""
    pair = [name for name in PAIR if name in table.columns]
    if pair and "text" in table.columns:
        raise InputError(
            f"{table.path}:1: the header must name either text, or text_a and text_b. "
            f"Received: {list(table.columns)}."
        )
    return PAIR if pair else SINGLE


def _read(table: Table, task: ClassifierTask, answered: bool) -> list[TextExample]:
    texts = PAIR if task.pair else SINGLE
    number = {label: i for i, label in enumerate(task.labels)}
    examples = []
    for place, cells in table.select((*texts, "label") if answered else texts):
        if answered and cells[-1] not in number:
            raise InputError(
                f"{place}: label {cells[-1]!r} does not occur in the training part, which has "
                f"{', '.join(number)}. Correct or remove the row."
            )
        label = number[cells[-1]] if answered else None
        examples.append(_example(cells[: len(texts)], label))
    return examples


def _example(texts: list[str], label: int | None) -> TextExample:
    return TextExample(texts[0], texts[1] if len(texts) > 1 else None, label)


def _balance(examples: Sequence[TextExample], labels: Sequence[str]) -> str:
    counts = collections.Counter(example.label for example in examples)
    shares = (
        f"{label} {counts[i]:,} ({counts[i] / len(examples):.1%})" for i, label in enumerate(labels)
    )
    return f"{len(examples):,} examples: {', '.join(shares)}"
