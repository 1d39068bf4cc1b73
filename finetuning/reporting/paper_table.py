"""The paper's table of fine-tuned runs: one row per pretraining run."""

import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf import info
from albert_tf.models.checkpoints import load_config
from albert_tf.runtime.run_dir import RunDir
from finetuning.datasets import TASKS
from finetuning.reporting.report import AT_BEST_THRESHOLD

Results = dict[tuple[str, str], list[dict[str, Any]]]  # (run, task) -> one result per seed


def table_of(runs: Sequence[str], tasks: Sequence[str], results: Results, baseline: str) -> str:
    """Return the paper's table, with one row per run."""
    unit = speed_of(baseline)
    columns = {title: (task, names) for task in tasks for title, names in _columns(task).items()}
    rows = []
    for run in runs:
        cells, averaged = [], []
        for title, (task, names) in columns.items():
            if (run, task) not in results:
                cells.append("failed")
                continue
            medians = _medians(results[run, task])
            values = [100 * medians[name] for name in names]
            cells.append("/".join(f"{value:.1f}" for value in values))
            if title == task:
                averaged.append(statistics.mean(values))
        complete = len(averaged) == len(tasks)
        speed = speed_of(run)
        rows.append(
            (
                os.path.basename(run),
                f"{load_config(run).param_count():,}",
                *cells,
                f"{statistics.mean(averaged):.1f}" if complete else "",
                f"{speed / unit:.1f}x" if speed and unit else "",
            )
        )
    return info.markdown_table(("run", "parameters", *columns, "Avg", "speed-up"), rows)


def _columns(task: str) -> dict[str, tuple[str, ...]]:
    """Return a task's columns and their metrics.

    As in the paper, Avg takes the mean of the first column's metrics.
    """
    at_its_own = ("f1", "exact_match")
    if task == "squad2":
        return {task: tuple(AT_BEST_THRESHOLD), f"{task}, own threshold": at_its_own}
    return {task: at_its_own if task == "squad1" else TASKS[task].metrics[:1]}


def _medians(every: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    names = [name for name, value in every[0].items() if isinstance(value, float)]
    return {name: statistics.median(result[name] for result in every) for name in names}


def speed_of(run: str) -> float | None:
    """Return the pieces/s of a run's pretraining, or None if it was not pretrained here."""
    return RunDir(run).result().get("tokens_per_s") if RunDir(run).is_complete else None
