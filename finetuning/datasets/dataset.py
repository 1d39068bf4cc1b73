"""The interface of a dataset."""

import abc
import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Generic

from albert_tf.runtime.bounds import POSITIVE, Bounded, between, one_of
from albert_tf.runtime.errors import InputError, shortened
from albert_tf.tasks.task_settings import SettingsT, TaskSettings
from finetuning.datasets.scores import metrics
from finetuning.datasets.tables.table_files import write_predictions

LABELS_SHOWN = 50  # in a log
Prediction = dict[str, Any]  # of one example, from `decode` of the task's kind


@dataclasses.dataclass(frozen=True)
class Reading(Bounded):
    """The columns and examples that a run uses, stored in its config.json as `reading`.

    Attributes:
      text_column: in a user's own table, the column of the text or the two columns of a pair.
        Empty: `text`, or `text_a` and `text_b`. In CoNLL columns, a number counted from 0.
      label_column: in a user's own table, the column of the label.
      label_columns: in a user's own table for multi-label classification, a column of 0 and 1 for
        each label, whose name it has. Empty: one column, `label_column`, has the labels.
      column_separator: the separator of CoNLL columns. Empty: a tab if most lines have one, else
        runs of spaces and tabs. A space: runs of spaces.
      dev_fraction: the share of the training examples that serves as the dev part; 0 if the dataset
        has one.
      max_train_examples: the maximum number of training examples. None: all.
      label_separator: in a user's own table, the separator of the labels in a cell.
      offsets: the unit in which the offsets of spans count.
    """

    KEY = "--{}"

    text_column: tuple[str, ...] = ()
    label_column: str = "label"
    dev_fraction: Annotated[float, between("[0, 1)")] = 0.0
    max_train_examples: Annotated[int | None, POSITIVE] = None
    label_separator: str = ","
    column_separator: str = ""
    offsets: Annotated[str, one_of("characters", "utf16")] = "characters"
    label_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        names = (*self.text_column, *self.columns_of_labels)
        if len(set(self.columns_of_labels)) < len(self.columns_of_labels):
            raise InputError(
                "--label_column must name another column each time. Received: "
                f"{', '.join(self.columns_of_labels)}."
            )
        if len(self.text_column) > 2 or len(set(names)) < len(names):
            raise InputError(
                "--text_column must name one column, or be given twice for pairs, and "
                f"--label_column another one. Received: {', '.join(names)}."
            )
        if not self.label_separator:
            raise InputError("--label_separator must not be empty. Received: ''.")

    @property
    def columns_of_labels(self) -> tuple[str, ...]:
        """The column of the label, or of each label."""
        return self.label_columns or (self.label_column,)


@dataclasses.dataclass(frozen=True)
class Source:
    """The location of a dataset's examples: files in their original layout, or TFDS.

    Attributes:
      data_dir: the folder of the files; with `tfds`, the folder of TFDS's datasets (None: its
        default).
      tfds: read the dataset prepared by TFDS.
      reading: the columns and examples to use.
    """

    data_dir: str | None
    tfds: bool = False
    reading: Reading = Reading()

    @property
    def location(self) -> str:
        """The location in Markdown."""
        if self.data_dir is None:
            return "TFDS"
        folder = f"`{os.path.abspath(self.data_dir)}`"
        return f"TFDS in {folder}" if self.tfds else folder


def source_of(
    dataset: "Dataset", data_dir: str | None, tfds: bool, reading: Reading = Reading()
) -> Source:
    """Return the source that the command-line options describe.

    Raises:
      InputError: neither option is set, or --tfds for a dataset that TFDS does not have.
    """
    if tfds and not dataset.has_tfds:
        raise InputError(
            "--tfds must not be set for this dataset, which is read from files. Pass --data_dir "
            "alone."
        )
    if data_dir is None and not tfds:
        raise InputError("--data_dir is required: pass the folder of the task's files.")
    return Source(data_dir, tfds, reading)


@dataclasses.dataclass(frozen=True)
class Data(Generic[SettingsT]):
    """The examples of a dataset.

    Attributes:
      task: the `task` section of the config, which depends on the data.
      train: the training examples.
      dev: name -> dev examples; the first set chooses the best weights.
      recipe: settings outside `task` that these examples need, as `key: value` for --set; the
        dataset's recipe and the user's settings replace them.
    """

    task: SettingsT
    train: Sequence[Any]
    dev: Mapping[str, Sequence[Any]]
    recipe: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Dataset(abc.ABC, Generic[SettingsT]):
    """A dataset in its own layout.

    Examples are of the class `example` of its kind, which turns them into features, and outputs
    into predictions. A served model, which does not import this package, therefore does the same.

    Attributes:
      kind: the kind of the task, a key of `albert_tf.tasks.kinds.KINDS`.
      metrics: the names of the main metrics; the first one chooses the best weights by default.
      recipe: the paper's settings as `key: value` for --set.
      options: the options of `finetuning.train` about its files, attributes of `Reading`.
      columns: the columns of `finetuning.table`: the end of the title -> its metrics. The mean of
        the first column's counts in the average. Empty: one column with the first metric.
      language: the code of the texts' language. None: they may be in any.
      trained_on: the dataset to train on instead, if this one has no training part.
      has_tfds: True if it can also be read as TFDS has prepared it.
    """

    kind: str
    metrics: tuple[str, ...]
    recipe: Mapping[str, Any] = {}
    options: tuple[str, ...] = ()
    columns: Mapping[str, tuple[str, ...]] = {}
    language: str | None = None
    trained_on: str | None = None
    has_tfds: bool = False

    def with_reading(self, reading: Reading) -> "Dataset":
        """Return the dataset as it writes submissions of runs with this reading."""
        return self

    @abc.abstractmethod
    def read(self, source: Source) -> Data:
        """Return the training and dev examples.

        They are chosen with `with_dev` and `limited` of `finetuning.datasets.selection`.

        Raises:
          InputNotFoundError: a file is missing.
          InputError: a row is invalid; the message names file, row and remedy.
        """

    @abc.abstractmethod
    def read_part(self, source: Source, part: str, task: SettingsT) -> Sequence[Any]:
        """Return the examples of another part, such as `test`, for a run whose section is `task`.

        They may have no answers, and their texts may be empty. The errors are those of `read`.
        """

    def measured(self, examples: Sequence[Any]) -> Sequence[Any]:
        """Return training examples that were held out as a dev part, in the form that is scored."""
        return examples

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Any]) -> dict[str, float]:
        """Return the metrics, in [-1, 1], and other values of the official scorer."""
        answers = metrics.answers_of(examples)
        return metrics.compare(
            self.metrics, answers, [self.number(prediction) for prediction in predictions]
        )

    def number(self, prediction: Prediction) -> float:
        """Return what is compared with the label of an example; here the number of the label."""
        return list(prediction["probabilities"]).index(prediction["label"])

    def write_submission(
        self, path: str, predictions: Sequence[Prediction], examples: Sequence[Any]
    ) -> None:
        """Write the leaderboard's file; here `index`, counted from 0, and `prediction`."""
        write_predictions(path, [self.answer(prediction) for prediction in predictions])

    def answer(self, prediction: Prediction) -> str:
        """Return the cell of a prediction in that file; here the label."""
        return prediction["label"]


def require_section(name: str, task: TaskSettings, **expected: Any) -> None:
    """Check that the `task` section of a run fits the dataset `name`.

    Args:
      name: the dataset.
      task: the `task` section.
      expected: key of the section -> the only valid value.

    Raises:
      InputError: the section has other values; the message names their keys.
    """
    values = {key: getattr(task, key, None) for key in expected}
    if differing := [key for key in expected if values[key] != expected[key]]:
        remedy = "Pass another run, or the run's own task."
        if differing == ["labels"] and set(values["labels"] or ()) == {*expected["labels"]}:
            labels = ",".join(expected["labels"])
            remedy = f"Convert it: python -m albert_tf.convert --set task.labels={labels}."
        raise InputError(
            f"--task: {name} requires a run with {_format_values(expected, differing)}. Received: "
            f"a run with {_format_values(values, differing)}. {remedy}"
        )


def _format_values(values: dict[str, Any], keys: list[str]) -> str:
    return " and ".join(f"`task.{key}` {shortened(values[key])}" for key in keys)


def paper_settings(
    learning_rate: float,
    batch_size: int,
    steps: int,
    warmup_steps: int,
    encoder_dropout: float = 0.0,
    evaluate_every: int = 100,
) -> dict[str, Any]:
    """Return a row of the paper's Table 14 as keys and values for --set.

    The dev examples are evaluated as often as in google-research/albert (`save_checkpoints_steps`):
    the published scores are the best of these evaluations.
    """
    return {
        "training.learning_rate": learning_rate,
        "training.batch_size": batch_size,
        "training.steps": steps,
        "training.warmup_steps": warmup_steps,
        "training.evaluate_every": evaluate_every,
        "training.bias_correction": False,
        "model.hidden_dropout": encoder_dropout,
        "model.attention_dropout": encoder_dropout,
        "task.dropout": 0.1,
        "task.seq_length": 512,
    }
