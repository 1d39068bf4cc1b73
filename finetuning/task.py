"""What a fine-tuning task is."""

import dataclasses
from typing import Protocol

from albert_tf.tasks.classifier import ClassifierTask


@dataclasses.dataclass(frozen=True)
class Examples:
    """Labelled texts: `second` is None for single texts; `labels` index the task's labels."""

    first: tuple[str, ...]
    second: tuple[str, ...] | None
    labels: tuple[int, ...]


class Task(Protocol):
    """A data set in its own layout.

    1. `read` finds the training and the dev examples under a folder and the labels that occur in
       the training part, sorted; it raises `InputError` naming file, row and remedy for a row that
       does not fit.
    2. What is read is text; `albert_tf.tasks` turns it into features, so that a served model, which
       never sees this package, does the same.
    """

    def read(self, data_dir: str) -> tuple[ClassifierTask, Examples, Examples]:
        """(task section of the config, training examples, dev examples)."""
