"""The paper's table of fine-tuned runs: one row per pretraining run."""

import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf import info
from albert_tf.models.checkpoints import load_config
from albert_tf.runtime import pretrained
from albert_tf.runtime.run_dir import RunDir
from finetuning.datasets import TASKS
from finetuning.reporting.report import AT_BEST_THRESHOLD, by_metric

CONSTANT = "always the same answer"
BAG_OF_WORDS = "bag-of-words"  # a row without an encoder
Results = dict[tuple[str, str], list[dict[str, Any]]]  # (run, task) -> one result per seed


def table_of(runs: Sequence[str], tasks: Sequence[str], results: Results, baseline: str) -> str:
    """Return the paper's table, with one row per run, and rows for the data of each task."""
    unit = speed_of(baseline)
    columns = {title: (task, names) for task in tasks for title, names in _columns(task).items()}
    rows = []
    for run in runs:
        cells, averaged = [], []
        for title, (task, names) in columns.items():
            if (run, task) not in results:
                cells.append("" if run == BAG_OF_WORDS else "failed")
                continue
            values = _medians(results[run, task])
            errors = _medians([by_metric(each, "standard_error") for each in results[run, task]])
            cells.append(_cell(names, values, errors))
            if title == task:
                averaged.append(statistics.mean(100 * values[name] for name in names))
        complete = len(averaged) == len(tasks)
        speed = speed_of(run)
        rows.append(
            (
                name_of(run),
                "" if run == BAG_OF_WORDS else f"{load_config(_path_of(run)).param_count():,}",
                *cells,
                f"{statistics.mean(averaged):.1f}" if complete else "",
                f"{speed / unit:.1f}x" if speed and unit else "",
            )
        )
    of_data = [(names, _any_result(task, results)) for task, names in columns.values()]
    constant = [_cell(names, by_metric(result, "baseline"), {}) for names, result in of_data]
    counts = [f"{result['dev_examples']:,}" if result else "" for _, result in of_data]
    rows += [(CONSTANT, "", *constant, "", ""), ("dev examples", "", *counts, "", "")]
    return info.markdown_table(("run", "parameters", *columns, "Avg", "speed-up"), rows)


def baselines_by_task(tasks: Sequence[str], results: Results) -> dict[str, dict[str, float]]:
    """Return the scores of always giving the same answer, for the tasks that have one."""
    found = {task: by_metric(_any_result(task, results), "baseline") for task in tasks}
    return {task: scores for task, scores in found.items() if scores}


def _any_result(task: str, results: Results) -> Mapping[str, Any]:
    """Return the result of any run on a task, for the values that depend only on the data."""
    return next((every[0] for (_, name), every in results.items() if name == task), {})


def _cell(names: Sequence[str], values: Mapping[str, float], errors: Mapping[str, float]) -> str:
    """Return scores in percent, each with its standard error if there is one."""
    return "/".join(
        f"{100 * values[name]:.1f}" + (f" ± {100 * errors[name]:.1f}" if name in errors else "")
        for name in names
        if name in values
    )


def _columns(task: str) -> dict[str, tuple[str, ...]]:
    """Return a task's columns and their metrics.

    As in the paper, Avg takes the mean of the first column's metrics.
    """
    at_its_own = ("f1", "exact_match")
    if task == "squad2":
        return {task: tuple(AT_BEST_THRESHOLD), f"{task}, own threshold": at_its_own}
    if task == "multi_label":
        return {task: ("macro_f1",), f"{task}, average precision": ("average_precision",)}
    return {task: at_its_own if task == "squad1" else TASKS[task].metrics[:1]}


def _medians(every: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the medians over the seeds of the values that every seed has."""
    common = set.intersection(*(set(each) for each in every))
    names = [
        name for name, value in every[0].items() if name in common and isinstance(value, float)
    ]
    return {name: statistics.median(result[name] for result in every) for name in names}


def name_of(run: str) -> str:
    """Return the name of a run's row and of its folder."""
    if run == BAG_OF_WORDS:
        return run
    return os.path.basename(_path_of(run)) + "-random" * run.startswith(pretrained.RANDOM)


def _path_of(run: str) -> str:
    return pretrained.locate(run.removeprefix(pretrained.RANDOM))


def speed_of(run: str) -> float | None:
    """Return the pieces/s of a run's pretraining, or None if it was not pretrained here."""
    return RunDir(run).result().get("tokens_per_s") if RunDir(run).is_complete else None
