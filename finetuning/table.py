r"""Fine-tune pretraining runs on several tasks and print the paper's table row for each run.

    python -m finetuning.table --runs='runs/sharing/*' --data_dir=tasks \
        --tasks=squad1,squad2,mnli,sst-2,race --output=tables/sharing

Together with `pretraining.sweep`, this makes the paper's Tables 2 to 6, 8, 12 and 13. For Tables 7
and 11, docs/reproduce.md says how to train the rows.
DATA_DIR holds one folder per task, named after the task in upper or lower case, such as CoLA and
SST-2. RACE also serves race-middle and race-high. SQuAD holds the files of both versions, unless
there are folders squad1 and squad2. For a single task, DATA_DIR may also be the folder of its
files. `finetuning.train` fine-tunes each run on each task with --seeds, in a separate process, and
writes OUTPUT/RUN/TASK. A rerun skips finished fine-tunings and resumes interrupted ones; runs and
tasks may be added. If a run is not complete or a fine-tuning fails, the command continues with the
others, reports it in a line at the end and exits with status 2.

Besides runs, --runs takes two baselines: random:RUN fine-tunes the encoder of RUN from random
initialization; bag-of-words is logistic or ridge regression on features of the words, regularized
by cross-validation, with training.threshold_share and training.threshold_per_label from --set.

The table lists each run's parameters, the dev scores in percent (SQuAD: F1/EM; for several seeds
the medians, with the range in brackets), their average (Avg), and the pretraining speed relative to
--baseline. SQuAD 2.0 has two columns: the paper's protocol, which takes the threshold on the null
score that is best for F1 on these same dev examples, and the scores at the threshold that the run
predicts with. ± is the standard error from the number of dev examples, which the last row shows, or
of their paragraphs; it does not include the seeds. The row above the last has the score of always
giving the same answer: the most frequent label or option, the mean (whose correlation counts as 0),
or no answer. OUTPUT receives table.md and results.csv, with a line per run, task and seed, and per
task for that answer.

--part=test adds table-test.md and results-test.csv, with the scores on the part test, on which
nothing is chosen: SQuAD 2.0's first column takes the best threshold of dev. Nothing is fine-tuned
again.

Table 9, for which the paper fine-tuned RTE, STS-B and MRPC from its MNLI model:

    python -m finetuning.table --runs=runs/xxlarge --data_dir=glue --output=tables/glue --seeds=5 \
        --tasks=mnli,qnli,qqp,rte,sst-2,mrpc,cola,sts-b --from_mnli
"""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import commands, programs, settings
from albert_tf.runtime.bounds import POSITIVE, one_of
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.kinds import KINDS
from finetuning.datasets import DATASETS, TRAINED, trained_dataset
from finetuning.datasets.dataset import Data, Reading, Source
from finetuning.datasets.task_folders import task_folder
from finetuning.reporting import bag_of_words, intact_results, paper_table, part_scores
from finetuning.reporting.paper_table import BAG_OF_WORDS, Results, name_of, speed_of, write
from finetuning.reporting.table_runs import find_runs
from finetuning.training.config import RECIPES, FinetuneConfig
from finetuning.training.keys import require_settings

# Tasks with few training examples, which gain from an MNLI model (paper, section 4.9).
_FROM_MNLI = ("rte", "sts-b", "mrpc")


@dataclasses.dataclass(frozen=True)
class TableOptions(commands.CommandOptions):
    """The command line of `finetuning.table`."""

    runs: tuple[str, ...] = commands.option(
        "comma-separated globs of pretraining runs, names of included models, random:RUN or "
        "bag-of-words; may be repeated",
        path=True,
    )
    tasks: str = commands.option("comma-separated: " + ", ".join(TRAINED))
    data_dir: str = commands.option(
        "a folder with a subfolder for each task; for a single task also the folder of its files",
        path=True,
    )
    output: str = commands.option("the table's folder; an existing one is resumed", path=True)
    seeds: Annotated[int, POSITIVE] = commands.option("fine-tunings per run and task", 1)
    max_train_examples: Annotated[int | None, POSITIVE] = commands.option(
        "the maximum number of training examples of each task", None
    )
    from_mnli: bool = commands.option(
        f"start {', '.join(_FROM_MNLI)} from the best of the run's MNLI models", False
    )
    part: str | None = commands.option(
        "also score the fine-tuned runs on this part, such as test", None
    )
    baseline: str | None = commands.option(
        "the run that speeds are relative to; by default the first that has one", None, path=True
    )
    recipe: Annotated[str, one_of(*RECIPES)] = commands.option("as for finetuning.train", "paper")
    device: str = commands.option("as for finetuning.train", "auto")
    tpu: str | None = commands.option("as for finetuning.train", None)
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
        require_settings(KINDS[DATASETS[task].kind].settings, options.set)
    runs = find_runs(options.runs)
    if runs == [BAG_OF_WORDS] and not any(map(bag_of_words.has_baseline, tasks)):
        raise InputError(
            f"--runs={BAG_OF_WORDS} is a baseline for the kinds {', '.join(bag_of_words.KINDS)} "
            f"only. Received: --tasks={options.tasks}. Add a run, or another task."
        )
    baseline = _baseline(options, runs)
    outputs.require_folder(options.output, "--output")
    reading, is_only = Reading(max_train_examples=options.max_train_examples), len(tasks) == 1
    sources = {
        task: Source(task_folder(options.data_dir, task, is_only), reading=reading)
        for task in tasks
    }
    parts = {
        task: part_scores.read(DATASETS[task], sources[task], options.part)
        for task in tasks
        if options.part
    }
    pairs = [
        (run, task)
        for run in runs
        for task in sorted(tasks, key=lambda name: options.from_mnli and name in _FROM_MNLI)
    ]

    for run, task in pairs:
        _require_seeds(_target(options, run, task), options.seeds)

    def fine_tuned(run: str, task: str) -> list[dict[str, Any]]:
        return _fine_tuned(options, run, task, sources[task], run_command or _run)

    def on_part(run: str, task: str) -> list[dict[str, Any]]:
        if run == BAG_OF_WORDS:
            return [_bag_of_words(options, task, parts[task], tuned[run, task][0])]
        dataset, data = DATASETS[task], parts[task]
        members = _members(_target(options, run, task), options.seeds)
        return [
            _seed_of(member) | part_scores.result_of(dataset, data, member) for member in members
        ]

    tuned, failures = _collect(options, pairs, fine_tuned)
    if tuned:
        print(write(options.output, runs, tasks, tuned, baseline))
    if tuned and options.part:
        results, others = _collect(options, list(tuned), on_part, options.part)
        print(write(options.output, runs, tasks, results, baseline, options.part))
        failures += others
    print("\n".join(failures), file=sys.stderr, end="\n" if failures else "")
    return commands.USAGE_ERROR if failures else 0


def _collect(
    options: TableOptions,
    pairs: Sequence[tuple[str, str]],
    results_of: Callable[[str, str], list[dict[str, Any]]],
    part: str = "dev",
) -> tuple[Results, list[str]]:
    """Return the results of each run and task that has any, and a line for each that failed."""
    results: Results = {}
    failures = []
    for run, task in pairs:
        target = _target(options, run, task)
        print(f"== {target}", flush=True)
        try:
            if seed_results := results_of(run, task):
                results[run, task] = paper_table.checked(seed_results, task, target, part)
        except InputError as error:
            failures.append(f"failed: {target}: {error}")
    return results, failures


def _fine_tuned(
    options: TableOptions,
    run: str,
    task: str,
    source: Source,
    run_command: Callable[[list[str]], int],
) -> list[dict[str, Any]]:
    """Fine-tune a run on a task and return the result of each seed, or none with --dry_run.

    Raises:
      InputError: it failed.
    """
    if run == BAG_OF_WORDS:
        if not bag_of_words.has_baseline(task):
            return []
        if options.dry_run:
            print("   scikit-learn, in this process")
            return []
        return [_bag_of_words(options, task, DATASETS[task].read(source))]
    if RunDir(run).is_unfinished:
        raise InputError(f"{run} is not complete. Repeat its command to finish it.")
    target = _target(options, run, task)
    command = _command(options, _start(options, run, task), task, source, target)
    if options.dry_run:
        print(f"   {programs.shown(' '.join(['python', *command]))}")
        return []
    if status := run_command(command):
        raise InputError(f"finetuning.train exited with status {status}; see its message above.")
    return [_seed_of(member) | member.result() for member in _members(target, options.seeds)]


def _seed_of(member: RunDir) -> dict[str, Any]:
    return {"seed": member.config().get("seed")}


def _target(options: TableOptions, run: str, task: str) -> str:
    return os.path.join(options.output, name_of(run), task)


def _bag_of_words(
    options: TableOptions, task: str, data: Data, on_dev: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    of_run = settings.override(FinetuneConfig(AlbertConfig(), data.task), options.set).training
    thresholds = of_run.threshold_share, of_run.threshold_per_label
    return bag_of_words.result_of(DATASETS[task], data, *thresholds, on_dev)


def _start(options: TableOptions, run: str, task: str) -> str:
    """Return the flag for a fine-tuning's starting point.

    A fine-tuning that has begun keeps its starting point: with more seeds, another MNLI model may
    be the best.

    Raises:
      InputError: it starts from an MNLI model, and there is none.
    """
    if not options.from_mnli or task not in _FROM_MNLI:
        return f"--init={run}"
    if begun := RunDir(_target(options, run, task)).with_seeds():
        return f"--init_from_task={begun[0].config()['init']}"
    mnli = _target(options, run, "mnli")
    finished = [seed for seed in RunDir(mnli).with_seeds() if seed.is_complete]
    if finished:
        best = max(finished, key=lambda seed: intact_results.read_result(seed)["accuracy"])
        return f"--init_from_task={best.path}"
    if not options.dry_run:
        raise InputError(f"no finished run in {mnli}")
    return f"--init_from_task={mnli}"


def _command(
    options: TableOptions, start: str, task: str, source: Source, target: str
) -> list[str]:
    command = [
        "-m",
        "finetuning.train",
        f"--task={task}",
        f"--data_dir={source.data_dir}",
        start,
        f"--run_dir={target}",
        f"--seeds={options.seeds}",
        f"--recipe={options.recipe}",
        f"--device={options.device}",
        f"--cache_dir={os.path.join(options.output, 'features')}",
    ]
    if options.tpu:
        command.append(f"--tpu={options.tpu}")
    if options.max_train_examples:
        command.append(f"--max_train_examples={options.max_train_examples}")
    return [*command, *(part for assignment in options.set for part in ("--set", assignment))]


def _run(command: Sequence[str]) -> int:
    """Run a command in a separate process, which frees its memory, and return its exit status."""
    return subprocess.run(programs.process(*command[1:]), check=False).returncode


def _require_seeds(target: str, seeds: int) -> None:
    """Check that fine-tunings of one seed and of several do not get into the same folder."""
    several = os.path.isdir(os.path.join(target, "seed-0"))
    if os.path.isfile(RunDir(target).config_path) if seeds > 1 else several:
        count = "more than 1" if several else "1"
        raise InputError(
            f"--seeds must be {count}, as before: {target} has runs of that kind. Received: "
            f"{seeds}. Pass --seeds as before, or another --output."
        )


def _members(target: str, seeds: int) -> list[RunDir]:
    """Return the runs of a finished fine-tuning."""
    if seeds == 1:
        return [RunDir(target)]
    return [RunDir(os.path.join(target, f"seed-{i}")) for i in range(seeds)]


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
    tasks = list(dict.fromkeys(name for name in names.split(",") if name))
    for name in tasks:
        trained_dataset(name, "--tasks")
    if not tasks:
        raise InputError(f"--tasks must name at least one task. Received: {json.dumps(names)}.")
    if options.from_mnli and "mnli" not in tasks:
        raise InputError(f"--from_mnli requires mnli among --tasks. Received: {json.dumps(names)}.")
    return tasks


if __name__ == "__main__":
    commands.run(main, TableOptions, __doc__)
