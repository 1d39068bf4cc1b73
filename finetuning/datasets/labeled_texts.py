"""Texts or pairs of texts with labels from a fixed list: what such datasets share."""

import abc
from collections.abc import Sequence
from typing import Any

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.task_settings import TaskSettings
from finetuning.datasets.dataset import Data, Dataset, Source, require_section
from finetuning.datasets.selection import limited, with_dev
from finetuning.datasets.tables.table_files import Rows, Table


class LabeledTexts(Dataset[TaskSettings]):
    """A dataset of labeled texts; a new one says what its files are.

    Attributes:
      name: the name in messages.
      texts: the columns of the text or texts.
      labels: the labels, in the order of the logits, which the column `label` has.
      dev: the dev parts; the first one chooses the best weights.
    """

    kind: str = "classifier"
    metrics: tuple[str, ...] = ("accuracy",)
    name: str
    texts: tuple[str, ...]
    labels: tuple[str, ...]
    dev: tuple[str, ...] = ("dev",)

    @abc.abstractmethod
    def table(self, source: Source, part: str) -> Table:
        """Return the table of a part; see `open_table` of `table_files`, `find` of `part_files`."""

    @property
    def section(self) -> TaskSettings:
        """The default `task` section of a run."""
        return ClassifierSettings(pair=len(self.texts) > 1, labels=self.labels)

    def read(self, source: Source) -> Data:
        """Return the training and dev examples."""

        def reader(part: str) -> Any:
            return lambda: self.examples(source, part)

        parts = {part.removeprefix("dev_"): reader(part) for part in self.dev}
        train, dev = with_dev(source, self.examples(source, "train"), parts)
        return Data(self.section, limited(source, self.without(train, dev)), dev)

    def without(self, train: Sequence[Any], dev: Any) -> Sequence[Any]:
        """Return the training examples to use beside these dev parts; here all of them."""
        return train

    def read_part(self, source: Source, part: str, task: TaskSettings) -> list[TextExample]:
        """Return the examples of a part, whose texts may be empty."""
        section, labels = self.section, self.labels or None
        require_section(self.name, task, kind=section.kind, pair=section.pair, labels=labels)
        return self.examples(source, part, allow_empty=True)

    def examples(self, source: Source, part: str, allow_empty: bool = False) -> list[TextExample]:
        """Return the examples of a part."""
        examples, count = [], len(self.texts)
        for location, cells in self.rows(source, part, allow_empty):
            second = cells[1] if count > 1 else None
            label = self.label(cells[-1], location) if len(cells) > count else None
            examples.append(TextExample(cells[0], second, label))
        return examples

    def rows(self, source: Source, part: str, allow_empty: bool) -> Rows:
        """Return `file:line`, the texts, and the label if the part has one, for each row."""
        table = self.table(source, part)
        names = (*self.texts, "label") if "label" in table.columns else self.texts
        return table.select(names, allow_empty=allow_empty)

    def label(self, text: str, location: str) -> float:
        """Return the number of a label.

        Raises:
          InputError: there is no such label.
        """
        if text not in self.labels:
            raise InputError(
                f"{location}: label {text!r} is not one of {', '.join(self.labels)}. Correct or "
                "remove the row."
            )
        return self.labels.index(text)
