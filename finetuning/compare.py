r"""Compare fine-tuned runs of a dataset on the dev examples that they share.

    python -m finetuning.compare --runs=runs/sst-2-base,runs/sst-2-small
    python -m finetuning.compare --runs='runs/cola/*' --baseline=runs/cola/base --output=cola.csv

The table has a row for each run: its scores on the dev examples, and their differences to those of
--baseline, by default the first run. A folder of several seeds stands for all of them. Only the
predictions that fine-tuning has written are read: no model is loaded, and no data.

± is one standard error, from the number of dev examples or, where questions share paragraphs, of
paragraphs. That of a difference comes from the same
examples for both runs. Since an example is easy or hard for both, it is usually smaller than the
errors of the two scores suggest. A difference of less than two of its errors may be chance. The
errors do not include the seed: train several of each run to see how much they differ by themselves.
There are no errors for fewer than 30.

The runs must have the same dataset, labels and dev examples. They may differ in everything else,
such as the encoder, the settings or the number of training examples. --output receives the same
values as CSV, with errors in columns of their own.
"""

import csv
import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from albert_tf.runtime import commands
from albert_tf.runtime.errors import InputError, InputNotFoundError, listed, shortened
from albert_tf.runtime.files import outputs
from albert_tf.runtime.files.paths import matching
from albert_tf.runtime.report_text import markdown_table
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.predictor import task_of
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Prediction
from finetuning.kinds.registry import FINETUNING
from finetuning.reporting.report import read_predictions, with_error


@dataclasses.dataclass(frozen=True)
class CompareOptions(commands.CommandOptions):
    """The command line of `finetuning.compare`."""

    runs: tuple[str, ...] = commands.option(
        "comma-separated fine-tuned runs, or globs of them; may be repeated", path=True
    )
    baseline: str | None = commands.option(
        "the run that the others are compared with; by default the first one", None, path=True
    )
    output: str | None = commands.option("also write the table to this CSV file", None, path=True)
    dry_run: bool = commands.option("print the runs, but compare nothing", False)


class _Run(NamedTuple):
    """What a run has predicted.

    Attributes:
      path: its folder.
      head: the names of its dataset and kind, and its labels.
      data: the fingerprint of all its data.
      examples: the dev examples, by the name of the dev set.
      predictions: the predictions for them.
      scores: their scores.
    """

    path: str
    head: tuple[Any, ...]
    data: str | None
    examples: dict[str, list[Any]]
    predictions: dict[str, list[Prediction]]
    scores: dict[str, dict[str, float]]


def main(options: CompareOptions) -> None:
    """Print the table of the runs that `options` name."""
    if options.output:
        outputs.require_file(options.output, "--output")
    first = _paths([options.baseline], "--baseline") if options.baseline else []
    if len(first) > 1:
        raise InputError(f"--baseline must be one run. Received: {', '.join(first)}. Pass one.")
    paths = list(dict.fromkeys([*first, *_paths(options.runs, "--runs")]))
    if len(paths) < 2:
        raise InputError(f"--runs must name two or more runs. Received: {paths[0]}. Add another.")
    if options.dry_run:
        print("\n".join(paths))
        return
    baseline, *others = map(_read, paths)
    for other in others:
        _require_comparable(baseline, other)
    if changed := [other.path for other in others if other.data != baseline.data]:
        print(
            f"note: {listed(changed)}: the dev examples are those of {baseline.path}, but other "
            "data is not: the training examples, or the documents to search.",
            file=sys.stderr,
        )
    rows = [_row(run, baseline) for run in (baseline, *others)]
    outputs.say(options.output or "", _table(rows))
    sizes = (f"{len(part):,} examples of {name}" for name, part in baseline.examples.items())
    note = f"{', '.join(sizes)}; differences to {baseline.path}; ± is one standard error."
    outputs.say(options.output or "", note)
    if options.output:
        with outputs.new_text(options.output) as file:
            writer = csv.DictWriter(file, list(rows[1]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def _paths(items: Sequence[str], flag: str) -> list[str]:
    """Return the complete runs that the values of a flag stand for, seeds in their order."""
    runs: list[str] = []
    for item in items:
        for pattern in [item] if matching(item) else item.split(","):  # a path may have a comma
            found = [run for path in matching(pattern) for run in _with_seeds(path)]
            if not found:
                raise InputNotFoundError(
                    f"{flag} must name complete runs of finetuning.train. Received: {pattern!r}, "
                    f"where no folder has a result.json (working directory {os.getcwd()})."
                )
            runs += found
    return runs


def _with_seeds(path: str) -> list[str]:
    """Return a folder and those of its seeds, if they are complete runs; note unfinished ones."""
    runs = RunDir(os.path.normpath(path)).with_seeds()
    for run in runs:
        if run.is_unfinished:
            print(f"note: {run.path} has not ended and is left out.", file=sys.stderr)
    return [run.path for run in runs if run.is_complete]


def _read(path: str) -> _Run:
    """Return the run in a folder.

    Raises:
      InputError: it is not a fine-tuned run of a dataset with predictions, or they are damaged.
    """
    task = task_of(path)
    config, files = RunDir(path).config(), RunDir(path).predictions()
    name = config.get("name")
    if name not in DATASETS or not files:
        raise InputError(
            f"{path} must be a run of finetuning.train, with predictions for its dev examples. "
            f"Received: {len(files)} files in {os.path.join(path, 'predictions')}, of the dataset "
            f"{shortened(name)}. Train it again."
        )
    head = name, task.kind, task.labels if task.has_labels() else ()
    run = _Run(path, head, config.get("data"), {}, {}, {})
    for part, file in files.items():
        examples, predictions = read_predictions(file, task)
        try:
            run.scores[part] = DATASETS[name].score(predictions, examples)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{file} must hold predictions of the kind {task.kind!r}. Received: some that have "
                f"no score ({error!r}). Restore the file, or train the run again."
            ) from None
        run.examples[part], run.predictions[part] = examples, predictions
    return run


def _require_comparable(baseline: _Run, other: _Run) -> None:
    """Check that two runs have the same dataset, labels and dev examples.

    Raises:
      InputError: they have not.
    """
    runs = (baseline, other)
    if baseline.head != other.head:
        described = (f"{run.path} of {', '.join(map(shortened, run.head))}" for run in runs)
        raise InputError(
            "--runs must all be of the same dataset and labels. Received: "
            f"{' and '.join(described)}."
        )
    if baseline.examples != other.examples:
        sizes = ({name: len(part) for name, part in run.examples.items()} for run in runs)
        described = (f"{run.path} with {size}" for run, size in zip(runs, sizes, strict=True))
        raise InputError(
            "--runs must all have the same dev examples. Received: other ones, "
            f"{' and '.join(described)}. Train them with the same --data_dir and --dev_fraction."
        )


def _row(run: _Run, baseline: _Run) -> dict[str, Any]:
    """Return the run's path, scores and differences by the names of their columns."""
    row: dict[str, Any] = {"run": run.path}
    dataset, kind = DATASETS[run.head[0]], FINETUNING[run.head[1]]
    for part, examples in run.examples.items():
        own, others = run.predictions[part], baseline.predictions[part]
        scores, of_baseline = run.scores[part], baseline.scores[part]
        errors = kind.standard_errors(dataset, own, examples)
        paired = {} if run is baseline else kind.standard_errors(dataset, own, examples, others)
        for metric in dataset.metrics:
            name = metric if len(run.examples) == 1 else f"{metric}_{part}"
            row |= {name: scores[metric], f"{name}_error": errors.get(metric)}
            if run is not baseline:
                row[f"{name}_difference"] = scores[metric] - of_baseline[metric]
                row[f"{name}_difference_error"] = paired.get(metric)
    return row


def _table(rows: Sequence[dict[str, Any]]) -> str:
    names = [name for name in rows[1] if name != "run" and not name.endswith("_error")]
    header = ("difference" if name.endswith("_difference") else name for name in names)
    lines = [(row["run"], *(_shown(row, name) for name in names)) for row in rows]
    return markdown_table(("run", *header), lines)


def _shown(row: dict[str, Any], name: str) -> str:
    """Return a value with its error; nothing for differences of the baseline to itself."""
    if name not in row:
        return ""
    text = with_error(row[name], row[f"{name}_error"])
    return f"+{text}" if name.endswith("_difference") and row[name] >= 0 else text


if __name__ == "__main__":
    commands.run(main, CompareOptions, __doc__)
