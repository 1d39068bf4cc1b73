"""Classification of a user's own texts: `train` and `dev` as tables."""

import collections
from collections.abc import Sequence

from albert_tf.runtime.errors import InputError, listed
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.examples import TextExample
from finetuning.datasets.dataset import (
    LABELS_SHOWN,
    Data,
    Dataset,
    Source,
    require_section,
)
from finetuning.datasets.selection import limited, with_dev
from finetuning.datasets.tables.label_separator import note_separator
from finetuning.datasets.tables.own_tables import (
    Rows,
    examples_to_predict,
    note_absent,
    note_similar,
    open_part,
    ordered_labels,
    rows_of,
    text_columns,
)


class TextClassification(Dataset[ClassifierSettings]):
    """Texts (column `text`) or pairs (`text_a`, `text_b`) with any set of labels (`label`).

    `Source.reading` may name other columns. The labels are those of the training part, in the order
    of `ordered_labels`. A part to predict, such as `test`, may have no column for the label.
    """

    kind: str = "classifier"
    metrics: tuple[str, ...] = ("accuracy", "macro_f1")
    options = ("text_column", "label_column")

    def read(self, source: Source) -> Data:
        """Read the training and dev examples, and print the frequency of each label."""
        table, label_column = open_part(source, "train"), source.reading.label_column
        columns = text_columns(source, table)
        rows = [
            (at, texts, str(label)) for at, texts, label in rows_of(table, columns, label_column)
        ]
        counts = collections.Counter(label for _, _, label in rows)
        if len(counts) < 2:
            raise InputError(
                f"{table.path} must hold at least two labels. Received: {', '.join(counts)}."
            )
        note_separator([(at, [label]) for at, _, label in rows], "--task=multi_label ")
        task = ClassifierSettings(pair=len(columns) > 1, labels=ordered_labels(counts))
        number = {label: i for i, label in enumerate(task.labels)}

        def read_dev() -> list[TextExample]:
            return _examples(rows_of(open_part(source, "dev"), columns, label_column), task)

        every = [TextExample(*texts, number[label]) for _, texts, label in rows]
        train, dev = with_dev(source, every, {"dev": read_dev})
        train = limited(source, train)
        for part, examples in {"train": train, **dev}.items():
            print(f"{part}: {_balance(examples, task.labels)}")
        note_similar(task.labels)
        dev_labels = {example.label for examples in dev.values() for example in examples}
        absent = [label for i, label in enumerate(task.labels) if i not in dev_labels]
        note_absent(absent, source, " if a prediction names it, and otherwise not at all")
        return Data(task, train, dev)

    def read_part(
        self, source: Source, part: str, task: ClassifierSettings
    ) -> Sequence[TextExample]:
        """Read the examples of the file named `part`."""
        require_section("text_classification", task, kind=self.kind)
        return examples_to_predict(source, part, task.pair, lambda rows: _examples(rows, task))


def _examples(rows: Rows, task: ClassifierSettings) -> list[TextExample]:
    number = {label: i for i, label in enumerate(task.labels)}
    examples = []
    for location, texts, label in rows:
        if label is not None and label not in number:
            raise InputError(
                f"{location}: label {label!r} does not occur in the training part, which has "
                f"{listed(task.labels)}. Correct or remove the row."
            )
        examples.append(TextExample(*texts, None if label is None else number[label]))
    return examples


def _balance(examples: Sequence[TextExample], labels: Sequence[str]) -> str:
    counts = collections.Counter(example.label for example in examples)
    shares = [
        f"{label} {counts[i]:,} ({counts[i] / len(examples):.1%})" for i, label in enumerate(labels)
    ]
    return f"{len(examples):,} examples: {listed(shares, LABELS_SHOWN)}"
