r"""Draw the scores of finished tables against their numbers of training examples.

    python -m finetuning.learning_curve --tables='tables/sst-2-*' --output=sst-2.png

Each table is a folder of `finetuning.table`, made with its own --max_train_examples or with other
seeds. The PNG has one panel for each task and in it one line for each run, through the medians of
the task's first metric over the seeds. Bars reach from the worst seed to the best.
"""

import dataclasses
import os
import statistics
from collections.abc import Iterable, Iterator

from albert_tf.runtime import commands
from albert_tf.runtime.errors import InputError, shortened
from albert_tf.runtime.files import outputs
from albert_tf.runtime.files.paths import matching
from albert_tf.runtime.plots import Point, plot_curves
from finetuning.datasets import DATASETS
from finetuning.datasets.tables.table_files import open_table

Curves = dict[str, dict[str, list[Point]]]  # task (metric) -> run -> its points


@dataclasses.dataclass(frozen=True)
class LearningCurveOptions(commands.CommandOptions):
    """The command line of `finetuning.learning_curve`."""

    tables: tuple[str, ...] = commands.option(
        "a glob of tables' folders; may be repeated", path=True
    )
    output: str = commands.option("the PNG file", path=True)
    dry_run: bool = commands.option("check the options and the tables without drawing", False)


def main(options: LearningCurveOptions) -> None:
    """Read the tables and draw them."""
    outputs.require_file(options.output, "--output")
    if not options.output.endswith(".png"):
        raise InputError(f"--output must end in .png. Received: {options.output!r}.")
    files = [
        file
        for pattern in options.tables
        for folder in matching(pattern)
        if os.path.isfile(file := os.path.join(folder, "results.csv"))
    ]
    curves = curves_of(files)
    if not curves:
        raise InputError(
            "--tables must match folders of finetuning.table with a results.csv that holds "
            f"fine-tuned runs. Received: {', '.join(options.tables)}."
        )
    if not options.dry_run:
        plot_curves(options.output, curves, "training examples")
        print(options.output)


def curves_of(files: Iterable[str]) -> Curves:
    """Return the medians and ranges of the scores in files results.csv, in percent.

    Rows without a number of training examples (the constant answer) are left out.

    Raises:
      InputError: a file is damaged, or two files have the same run, task, number of training
        examples and seed.
    """
    scores: dict[str, dict[str, dict[int, list[float]]]] = {}
    origins: dict[tuple[str, ...], str] = {}  # the file of each score
    for path in dict.fromkeys(files):
        for where, row in _rows(path):
            title, count, value = _score_of(row, where)
            seeds = scores.setdefault(title, {}).setdefault(row["run"], {})
            score = row["task"], row["run"], row["train_examples"], row.get("seed", "")
            values = seeds.setdefault(count, [])
            other = origins.setdefault(score, path)
            if other != path and not row.get("seed") and values == [value]:
                continue  # the bag of words, which several tables may have
            if other != path:
                raise InputError(
                    f"--tables: {other} and {path} both have {row['run']} on {row['task']} "
                    f"with {count:,} training examples and the same seed. Leave one out."
                )
            values.append(value)
    return {
        task: {
            run: [
                (count, statistics.median(values), min(values), max(values))
                for count, values in sorted(seeds.items())
            ]
            for run, seeds in runs.items()
        }
        for task, runs in scores.items()
    }


def _rows(path: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield `file:line` and the cells by column of the rows that are of fine-tuned runs."""
    table = open_table(path)
    if "train_examples" in table.columns:
        table.require(("run", "task", "metric"))
        for where, cells in table.select(table.columns, unchecked=table.columns):
            row = dict(zip(table.columns, cells, strict=True))
            if row["train_examples"]:
                yield where, row


def _score_of(row: dict[str, str], where: str) -> tuple[str, int, float]:
    """Return the title of a row's panel, its number of training examples and score in percent."""
    try:
        metric = DATASETS[row["task"]].metrics[0]  # runs may have chosen by another one
        if row["metric"] not in row:
            raise KeyError(row["metric"])
        title = f"{row['task']} ({metric}, %)"
        return title, int(row["train_examples"]), 100 * float(row[metric])
    except (KeyError, ValueError):
        raise InputError(
            f"--tables: {where} must be a row as finetuning.table writes it. Received: "
            f"{shortened(row)}. Make the table again."
        ) from None


if __name__ == "__main__":
    commands.run(main, LearningCurveOptions, __doc__)
