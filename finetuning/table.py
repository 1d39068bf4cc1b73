r"""Fine-tune pretraining runs on several tasks and print the paper's table row for each run.

    python -m finetuning.table --runs='runs/sharing/*' --data_dir=tasks \
        --tasks=squad1,squad2,mnli,sst-2,race --output=tables/sharing

Together with `pretraining.sweep`, this makes the paper's Tables 3 to 8 and 11 to 13.
DATA_DIR holds one folder per task, named after the task in upper or lower case, such as CoLA and
SST-2. RACE also serves race-middle and race-high. SQuAD holds the files of both versions, unless
there are folders squad1 and squad2. For a single task, DATA_DIR may also be the folder of its
files. `finetuning.train` fine-tunes each run on each task with
--seeds, in a separate process, and writes OUTPUT/RUN/TASK. A rerun skips finished fine-tunings and
resumes interrupted ones; runs and tasks may be added. If a fine-tuning fails, the command reports
it, continues with the others and exits with status 2.

Besides runs, --runs takes two baselines: random:RUN fine-tunes the encoder of RUN from new weights,
and bag-of-words is logistic or ridge regression on features of the words, with
training.threshold_share and training.threshold_per_label as --set gives them.

The table lists each run's parameters, the dev scores in percent (SQuAD: F1/EM; medians over the
seeds), their average (Avg), and the pretraining speed relative to --baseline. SQuAD 2.0 has two
columns: the paper's protocol, which takes the threshold on the null score that is best for F1 on
these same dev examples, and the scores at the threshold that the run predicts with. ± is the
standard error from the number of dev examples, which the last row shows; the row above it has the
score of always giving the same answer: the most frequent label or option, the mean (whose
correlation counts as 0), or no answer. OUTPUT receives table.md and results.csv, which has one line
per run, task and seed, and one per task for that answer.

Table 9, for which the paper fine-tuned RTE, STS-B and MRPC from its MNLI model:

    python -m finetuning.table --runs=runs/xxlarge --data_dir=glue --output=tables/glue --seeds=5 \
        --tasks=mnli,qnli,qqp,rte,sst-2,mrpc,cola,sts-b --from_mnli
"""

import csv
import dataclasses
import glob
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import commands, outputs, pretrained, settings
from albert_tf.runtime.bounds import POSITIVE
from albert_tf.runtime.errors import InputError, InputNotFoundError, reading
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.kinds import KINDS
from finetuning.datasets import TASKS
from finetuning.datasets.task import Reading, Source
from finetuning.reporting import bag_of_words
from finetuning.reporting.paper_table import (
    BAG_OF_WORDS,
    CONSTANT,
    Results,
    baselines_by_task,
    name_of,
    speed_of,
    table_of,
)
from finetuning.reporting.report import by_metric
from finetuning.training.config import FinetuneConfig
from finetuning.training.keys import require_settings

_SHOWN = 5  # files in a message
# Folders that serve several tasks, whose files have different names in them.
_DATA_SETS = {
    "race-middle": ("race",),
    "race-high": ("race",),
    "squad1": ("squad",),
    "squad2": ("squad",),
}
# Tasks with few training examples, which gain from an MNLI model (paper, section 4.8).
_FROM_MNLI = ("rte", "sts-b", "mrpc")


@dataclasses.dataclass(frozen=True)
class TableOptions(commands.CommandOptions):
    """The command line of `finetuning.table`."""

    runs: tuple[str, ...] = commands.option(
        "comma-separated globs of pretraining runs, names of shipped models, random:RUN or "
        "bag-of-words; may be repeated"
    )
    tasks: str = commands.option("comma-separated: " + ", ".join(TASKS))
    data_dir: str = commands.option(
        "a folder with a subfolder for each task; for a single task also the folder of its files"
    )
    output: str = commands.option("the table's folder; an existing one is resumed")
    seeds: Annotated[int, POSITIVE] = commands.option("fine-tunings per run and task", 1)
    max_train_examples: Annotated[int | None, POSITIVE] = commands.option(
        "the most training examples of each task to use", None
    )
    from_mnli: bool = commands.option(
        f"start {', '.join(_FROM_MNLI)} from the best of the run's MNLI models", False
    )
    baseline: str | None = commands.option(
        "the run that speeds are relative to; by default the first", None
    )
    recipe: str = commands.option("paper or none", "paper")
    device: str = commands.option("as for finetuning.train", "auto")
    dry_run: bool = commands.option("print the fine-tunings, but run none", False)
    set: tuple[str, ...] = commands.option(
        "key=value for every fine-tuning, as for finetuning.train", ()
    )


def main(options: TableOptions, run_command: Callable[[list[str]], int] | None = None) -> int:
    """Fine-tune the runs, print the table and return the exit status.

    `run_command` can replace the separate process of each fine-tuning.
    """
    tasks = _tasks(options)
    for task in tasks:
        require_settings(KINDS[TASKS[task].kind].task, options.set)
    runs = _runs(options.runs)
    baseline = _baseline(options, runs)
    outputs.require_folder(options.output, "--output")
    folders = {task: _folder(options.data_dir, task, is_only=len(tasks) == 1) for task in tasks}
    results: Results = {}
    failures = []
    for run in runs:
        for task in sorted(tasks, key=lambda name: options.from_mnli and name in _FROM_MNLI):
            target = _target(options, run, task)
            print(f"== {target}", flush=True)
            if run == BAG_OF_WORDS:
                if TASKS[task].kind in bag_of_words.KINDS and not options.dry_run:
                    results[run, task] = [_bag_of_words(options, task, folders[task])]
                continue
            if not (start := _start(options, run, task)):
                failures.append(
                    f"failed: {target}: no finished run in {_target(options, run, 'mnli')}"
                )
                continue
            command = _command(options, start, task, folders[task], target)
            if options.dry_run:
                print(f"   python {' '.join(command)}")
            elif (run_command or _run)(command):
                failures.append(f"failed: {target}")
            else:
                results[run, task] = _results(target, options.seeds)
    if results:
        print(_write(options, runs, tasks, results, baseline))
    print("\n".join(failures), file=sys.stderr, end="\n" if failures else "")
    return commands.USAGE_ERROR if failures else 0


def _target(options: TableOptions, run: str, task: str) -> str:
    return os.path.join(options.output, name_of(run), task)


def _bag_of_words(options: TableOptions, task: str, folder: str) -> dict[str, Any]:
    source = Source(folder, reading=Reading(max_train_examples=options.max_train_examples))
    data = TASKS[task].read(source)
    training = settings.override(FinetuneConfig(AlbertConfig(), data.task), options.set).training
    return bag_of_words.result_of(
        TASKS[task], data, training.threshold_share, training.threshold_per_label
    )


def _start(options: TableOptions, run: str, task: str) -> str | None:
    """Return the flag for a fine-tuning's starting point, or None if it needs a missing MNLI model.

    A fine-tuning that has begun keeps its starting point: with more seeds, another MNLI model may
    be the best.
    """
    if not options.from_mnli or task not in _FROM_MNLI:
        return f"--init={run}"
    if begun := _seeds_at(_target(options, run, task)):
        return f"--init_from_task={begun[0].config()['init']}"
    finished = [seed for seed in _seeds_at(_target(options, run, "mnli")) if seed.is_complete]
    if finished:
        best = max(finished, key=lambda seed: seed.result()["accuracy"])
        return f"--init_from_task={best.path}"
    return f"--init_from_task={_target(options, run, 'mnli')}" if options.dry_run else None


def _seeds_at(target: str) -> list[RunDir]:
    """Return the runs of a fine-tuning that have begun, sorted by path."""
    paths = [target, *sorted(glob.glob(os.path.join(glob.escape(target), "seed-*")))]
    return [run for run in map(RunDir, paths) if os.path.isfile(run.config_path)]


def _command(options: TableOptions, start: str, task: str, data: str, target: str) -> list[str]:
    command = [
        "-m",
        "finetuning.train",
        f"--task={task}",
        f"--data_dir={data}",
        start,
        f"--run_dir={target}",
        f"--seeds={options.seeds}",
        f"--recipe={options.recipe}",
        f"--device={options.device}",
        f"--cache_dir={os.path.join(options.output, 'features')}",
    ]
    if options.max_train_examples:
        command.append(f"--max_train_examples={options.max_train_examples}")
    return [*command, *(part for assignment in options.set for part in ("--set", assignment))]


def _run(command: Sequence[str]) -> int:
    """Run a command in a separate process, which frees its memory, and return its exit status."""
    return subprocess.run([sys.executable, *command], check=False).returncode


def _results(target: str, seeds: int) -> list[dict[str, Any]]:
    if seeds == 1:
        return [RunDir(target).result()]
    return [RunDir(os.path.join(target, f"seed-{i}")).result() for i in range(seeds)]


def _write(
    options: TableOptions,
    runs: Sequence[str],
    tasks: Sequence[str],
    results: Results,
    baseline: str,
) -> str:
    table = table_of(runs, tasks, results, baseline)
    os.makedirs(options.output, exist_ok=True)  # without a fine-tuning it does not exist yet
    with outputs.new_file(os.path.join(options.output, "table.md")) as partial:
        with open(partial, "w", encoding="utf-8") as file:
            file.write(table + "\n")
    rows = [
        {"run": run, "task": task, "number": number, **_flat(result)}
        for (run, task), every in results.items()
        for number, result in enumerate(every)
    ]
    baselines = baselines_by_task(tasks, results)
    rows += [{"run": CONSTANT, "task": task, **scores} for task, scores in baselines.items()]
    names = list(dict.fromkeys(name for row in rows for name in row))
    with outputs.new_file(os.path.join(options.output, "results.csv")) as partial:
        with open(partial, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)
    return table


def _flat(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with a column for the standard error of each metric."""
    errors = by_metric(result, "standard_error")
    single = {key: value for key, value in result.items() if not isinstance(value, dict)}
    return single | {f"standard_error_{metric}": error for metric, error in errors.items()}


def _runs(items: Sequence[str]) -> list[str]:
    runs = list(dict.fromkeys(run for item in items for run in _all_matches(item)))
    names = [name_of(run) for run in runs]
    if twice := [run for run, name in zip(runs, names, strict=True) if names.count(name) > 1]:
        raise InputError(
            "--runs must have different names, because OUTPUT/RUN is each run's folder. Received: "
            f"{' and '.join(twice)}. Rename one, or make separate tables."
        )
    for run in runs:
        if RunDir(run).is_unfinished:
            raise InputError(
                f"--runs: {run} is not complete. Repeat its command to finish it, or pass only "
                "the others."
            )
    return runs


def _all_matches(item: str) -> list[str]:
    """Return the runs that an item of --runs stands for, which may be several with commas."""
    if found := _matches(item):  # its path may have a comma
        return found
    runs = []
    for pattern in item.strip(",").split(","):
        if not (found := _matches(pattern.strip())):
            raise InputNotFoundError(
                f"--runs matches no run: {pattern!r} (working directory {os.getcwd()}). Shipped "
                f"models: {', '.join(pretrained.names())}."
            )
        runs += found
    return runs


def _matches(pattern: str) -> list[str]:
    """Return the runs that a glob or a name stands for."""
    if pattern == BAG_OF_WORDS:
        return [pattern]
    if pattern.startswith(pretrained.RANDOM):
        return [
            pretrained.RANDOM + run for run in _matches(pattern.removeprefix(pretrained.RANDOM))
        ]
    if pattern in pretrained.names() and not os.path.exists(pattern):
        return [pattern]
    found = map(os.path.normpath, sorted(glob.glob(pattern)))
    return [path for path in found if os.path.isfile(RunDir(path).config_path)]


def _baseline(options: TableOptions, runs: Sequence[str]) -> str:
    if options.baseline is None:
        return next(filter(speed_of, runs), runs[0])
    if speed_of(options.baseline) is None:
        raise InputError(
            "--baseline must be a complete pretraining run with its speed in result.json. "
            f"Received: {options.baseline!r}."
        )
    return options.baseline


def _tasks(options: TableOptions) -> list[str]:
    names = options.tasks
    tasks = [name for name in names.split(",") if name]
    for name in tasks:
        if name not in TASKS:
            raise InputError(f"--tasks: {settings.unknown_key(name, TASKS, 'task')}")
    if not tasks:
        raise InputError(f"--tasks must name at least one task. Received: {json.dumps(names)}.")
    if options.from_mnli and "mnli" not in tasks:
        raise InputError(f"--from_mnli requires mnli among --tasks. Received: {json.dumps(names)}.")
    return tasks


def _folder(data_dir: str, task: str, is_only: bool = False) -> str:
    """Return the folder named after the task, in any case, or else after its dataset.

    If there is none, the only task's files may be in `data_dir` itself.

    Raises:
      InputNotFoundError: there is no such folder.
    """
    with reading(data_dir):
        names = sorted(os.listdir(data_dir)) if os.path.isdir(data_dir) else []
    wanted = (task, *_DATA_SETS.get(task, ()))
    found = [name for each in wanted for name in names if name.lower() == each]
    if found:
        return os.path.join(data_dir, found[0])
    if is_only and any("train" in name.lower() for name in names):  # as in every dataset
        return data_dir
    itself = " and no training part in that folder itself" if is_only else ""
    raise InputNotFoundError(
        f"--data_dir: no folder {' or '.join(wanted)} in {data_dir!r}{itself} (working directory "
        f"{os.getcwd()}), which contains {_listed(names)}."
    )


def _listed(names: Sequence[str]) -> str:
    shown, rest = ", ".join(names[:_SHOWN]), len(names) - _SHOWN
    return (shown or "nothing") + (f" and {rest:,} more" if rest > 0 else "")


if __name__ == "__main__":
    commands.run(main, TableOptions, __doc__)
