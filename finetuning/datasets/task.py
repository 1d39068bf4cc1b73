"""What a fine-tuning task is."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from albert_tf.runtime.errors import InputError

Prediction = dict[str, Any]  # what `decode` of the task's kind makes of an example


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a task's examples are: its files in their original layout, or a prepared TFDS.

    data_dir: the folder of the files; of TFDS, where it keeps its data sets (None: its own place).
    """

    data_dir: str | None
    tfds: bool = False


def source_of(data_dir: str | None, tfds: bool) -> Source:
    """From the command line's options. Raises: InputError where neither says where to read."""
    if data_dir is None and not tfds:
        raise InputError("--data_dir is required: the folder of the task's files.")
    return Source(data_dir, tfds)


@dataclasses.dataclass(frozen=True)
class Data:
    """A task's examples.

    task: the `task` section of the config, which the data decide.
    dev: name -> examples; the first is what the best weights are chosen by.
    """

    task: Any
    train: Sequence[Any]
    dev: Mapping[str, Sequence[Any]]


class Task(Protocol):
    """A data set in its own layout.

    1. `read` finds the training and the dev examples; `read_part` another part, such as `test`,
       whose examples may have no answers, for a run whose `task` section is known. Both raise
       `InputError`, which names file, row and remedy, for a row that does not fit.
    2. What is read are `albert_tf.tasks.examples`; `albert_tf.tasks.kinds` turns them into
       features and outputs into predictions, so that a served model, which never sees this
       package, does the same.
    3. `score` compares predictions with examples that have answers: metric -> value.
    4. `write_submission` writes predictions as the leaderboard wants them.
    """

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names that `score` gives, the one that chooses the best weights first."""

    @property
    def recipe(self) -> Mapping[str, Any]:
        """The paper's settings, `key: value` as for --set."""

    def read(self, source: Source) -> Data:
        """The training and the dev examples."""

    def read_part(self, source: Source, part: str, task: Any) -> Sequence[Any]:
        """The examples of another part."""

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Any]) -> dict[str, float]:
        """The metrics, in [-1, 1], and what else the official scorer says."""

    def write_submission(
        self, path: str, predictions: Sequence[Prediction], examples: Sequence[Any]
    ) -> None:
        """Writes the leaderboard's file."""


def require_section(name: str, task: Any, **expected: Any) -> None:
    """Refuses the `task` section of a run whose answers are not those of the data set `name`.

    Args:
      expected: key of the section -> the only value that fits.

    Raises:
      InputError: which keys of the section have other values.
    """
    found = {key: getattr(task, key, None) for key in expected}
    if differing := [key for key in expected if found[key] != expected[key]]:
        raise InputError(
            f"--task: {name} must be asked of a run with {_format_values(expected, differing)}. "
            f"Received: a run with {_format_values(found, differing)}. Name another "
            "run, or the run's own task."
        )


def _format_values(values: dict[str, Any], keys: list[str]) -> str:
    return " and ".join(f"`task.{key}` {values[key]!r}" for key in keys)
