"""Regression on a user's own texts: `train` and `dev` as tables."""

import math
import statistics
from collections.abc import Sequence
from typing import cast

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.regressor.model import RegressorSettings
from finetuning.datasets.dataset import Data, Dataset, Prediction, Source, require_section
from finetuning.datasets.selection import limited, with_dev
from finetuning.datasets.tables.own_tables import (
    Rows,
    examples_to_predict,
    open_part,
    rows_of,
    text_columns,
)

_LEAST_SPREAD = 2.0**-14  # of the mean: float32 then rounds to a thousandth of the deviation


class TextRegression(Dataset[RegressorSettings]):
    """Texts (column `text`) or pairs (`text_a`, `text_b`) with any numbers (`label`).

    `Source.reading` may name other columns. A part to predict, such as `test`, may have no column
    for the label.
    """

    kind: str = "regressor"
    metrics: tuple[str, ...] = ("pearson", "spearman")
    options = ("text_column", "label_column")

    def read(self, source: Source) -> Data:
        """Read the training and dev examples.

        The mean, standard deviation and range of their numbers are printed.
        """
        table, label_column = open_part(source, "train"), source.reading.label_column
        columns = text_columns(source, table)

        def read_dev() -> list[TextExample]:
            return _examples(rows_of(open_part(source, "dev"), columns, label_column))

        every = _examples(rows_of(table, columns, label_column))
        train, dev = with_dev(source, every, {"dev": read_dev})
        train = limited(source, train)
        for part, examples in {"train": train, **dev}.items():
            print(f"{part}: {_spread(examples)}")
        numbers = [float(example.label or 0) for example in train]
        if min(numbers) == max(numbers):
            raise InputError(
                f"{table.path} must hold different numbers. Received: only {numbers[0]}."
            )
        center, scale = statistics.fmean(numbers), statistics.pstdev(numbers)
        if scale < _LEAST_SPREAD * abs(center):
            raise InputError(
                f"{table.path}: the numbers must not be so close to each other that float32 cannot "
                f"tell them apart. Received: a mean of {center:g} and a standard deviation of "
                f"{scale:g}. Subtract a constant from all numbers, such as their mean."
            )
        task = RegressorSettings(pair=len(columns) > 1, center=center, scale=scale)
        return Data(task, train, dev)

    def read_part(
        self, source: Source, part: str, task: RegressorSettings
    ) -> Sequence[TextExample]:
        """Read the examples of the file named `part`."""
        require_section("text_regression", task, kind=self.kind)
        return examples_to_predict(source, part, task.pair, _examples)

    def number(self, prediction: Prediction) -> float:
        """Return the score."""
        return prediction["score"]

    def answer(self, prediction: Prediction) -> str:
        """Return the score."""
        return str(prediction["score"])


def _examples(rows: Rows) -> list[TextExample]:
    return [TextExample(a, b, _number(label, location)) for location, (a, b), label in rows]


def _number(label: str | None, location: str) -> float | None:
    if label is None:
        return None
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(
            f"{location}: `label` must be a number. Received: {label!r}. Correct or remove the "
            "row, or pass --task=text_classification if labels are names."
        )
    return number


def _spread(examples: Sequence[TextExample]) -> str:
    numbers = [cast(float, example.label) for example in examples]
    return (
        f"{len(numbers):,} examples: mean {statistics.fmean(numbers):.4g}, deviation "
        f"{statistics.pstdev(numbers):.4g}, from {min(numbers):.4g} to {max(numbers):.4g}"
    )
