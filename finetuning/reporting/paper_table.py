"""The paper's table of fine-tuned runs: one row per pretraining run."""

import csv
import itertools
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.models.checkpoints import load_config
from albert_tf.runtime import pretrained
from albert_tf.runtime.errors import InputError, shortened
from albert_tf.runtime.files import outputs
from albert_tf.runtime.files.log_rows import has_numbers
from albert_tf.runtime.report_text import markdown_table
from albert_tf.runtime.run_dir import RunDir
from finetuning.datasets import DATASETS
from finetuning.reporting import part_scores
from finetuning.reporting.bag_of_words import has_baseline
from finetuning.reporting.intact_results import require_intact

CONSTANT = "always the same answer"
BAG_OF_WORDS = "bag-of-words"  # a row without an encoder
Results = dict[tuple[str, str], list[dict[str, Any]]]  # (run, task) -> one result per seed


def write(
    folder: str,
    runs: Sequence[str],
    tasks: Sequence[str],
    results: Results,
    baseline: str,
    part: str | None = None,
) -> str:
    """Write table.md and results.csv, or table-PART.md and results-PART.csv; return the table."""
    end, part = (f"-{part}", part) if part else ("", "dev")
    table = table_of(runs, tasks, results, baseline, part)
    rows = [
        {"run": run, "task": task, **_flat(result, part)}
        for (run, task), every in results.items()
        for result in every
    ]
    rows += [
        {"run": name, "task": task, **scores[task]}
        for name, scores in _baselines(tasks, results).items()
        for task in tasks
        if task in scores
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    os.makedirs(folder, exist_ok=True)  # without a fine-tuning it does not exist yet
    outputs.write_bytes(os.path.join(folder, f"table{end}.md"), f"{table}\n".encode())
    with outputs.new_file(os.path.join(folder, f"results{end}.csv")) as partial:
        with open(partial, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)
    return table


def _flat(result: Mapping[str, Any], part: str) -> dict[str, Any]:
    """Return a result with a column for the standard error of each metric."""
    errors = result.get("standard_errors", {})
    single = {key: value for key, value in result.items() if not isinstance(value, dict | list)}
    scored = single.pop("dev_examples")
    single["scored_examples" if part == "train" else f"{part}_examples"] = scored
    return single | {f"standard_error_{metric}": error for metric, error in errors.items()}


def checked(
    results: list[dict[str, Any]], task: str, where: str, part: str
) -> list[dict[str, Any]]:
    """Return the results of all seeds of a run, if they have the scores in the table.

    Raises:
      InputError: one does not; the message names the folder `where`.
    """
    names = list(itertools.chain.from_iterable(_columns(task, part).values()))
    for result in results:
        require_intact(result, where, names)
    return results


def table_of(
    runs: Sequence[str], tasks: Sequence[str], results: Results, baseline: str, part: str = "dev"
) -> str:
    """Return the paper's table, with one row per run, and rows for the data of each task."""
    unit = speed_of(baseline)
    columns = {
        title: (task, names) for task in tasks for title, names in _columns(task, part).items()
    }
    rows = []
    for run in runs:
        cells, averaged = [], []
        for title, (task, names) in columns.items():
            if (run, task) not in results:
                is_excluded = run == BAG_OF_WORDS and not has_baseline(task)
                cells.append("" if is_excluded else "failed")
                continue
            every = results[run, task]
            values = _medians(every)
            errors = _medians([of_seed.get("standard_errors", {}) for of_seed in every])
            cells.append(_cell(names, values, errors, every))
            if title == task:
                averaged.append(statistics.mean(100 * values[name] for name in names))
        complete = len(averaged) == len(tasks)
        speed = speed_of(run)
        rows.append(
            (
                name_of(run),
                _parameters(run),
                *cells,
                f"{statistics.mean(averaged):.1f}" if complete else "",
                f"{speed / unit:.1f}x" if speed and unit else "",
            )
        )
    for name, scores in _baselines(tasks, results).items():
        cells = [_cell(names, scores.get(task, {}), {}) for task, names in columns.values()]
        rows.append((name, "", *cells, "", ""))
    of_data = [_any_result(task, results) for task, _ in columns.values()]
    counts = [f"{result['dev_examples']:,}" if result else "" for result in of_data]
    rows.append((f"{part} examples", "", *counts, "", ""))
    return markdown_table(("run", "parameters", *columns, "Avg", "speed-up"), rows)


def _baselines(tasks: Sequence[str], results: Results) -> dict[str, dict[str, Mapping[str, float]]]:
    """Return name -> task -> scores, of always giving the same answer and of the references."""
    baselines: dict[str, dict[str, Mapping[str, float]]] = {CONSTANT: {}}
    for task in tasks:
        result = _any_result(task, results)
        if constant := result.get("baselines"):
            baselines[CONSTANT][task] = constant
        for name, scores in result.get("references", {}).items():
            baselines.setdefault(name, {})[task] = scores
    return baselines


def _any_result(task: str, results: Results) -> Mapping[str, Any]:
    """Return the result of any run on a task, for the values that depend only on the data."""
    return next((every[0] for (_, name), every in results.items() if name == task), {})


def _cell(
    names: Sequence[str],
    values: Mapping[str, float],
    errors: Mapping[str, float],
    seeds: Sequence[Mapping[str, float]] = (),
) -> str:
    """Return scores in percent, with their standard errors and the range of several seeds."""

    def score(name: str) -> str:
        shown = f"{100 * values[name]:.1f}"
        if error := errors.get(name):  # 0 is that of equal answers, and no certainty
            shown += f" ± {100 * error:.1f}"
        if len(seeds) > 1:
            every = [100 * of_seed[name] for of_seed in seeds]
            shown += f" ({min(every):.1f} to {max(every):.1f})"
        return shown

    return "/".join(score(name) for name in names if name in values)


def _columns(task: str, part: str) -> dict[str, tuple[str, ...]]:
    """Return a task's columns and their metrics.

    As in the paper, Avg takes the mean of the first column's metrics.
    """
    dataset = DATASETS[task]
    columns = dataset.columns or {"": dataset.metrics[:1]}
    if part == "dev":
        return {task + end: names for end, names in columns.items()}
    return {
        task + end: tuple(part_scores.name_of(dataset.kind, name) for name in names)
        for end, names in columns.items()
    }


def _medians(every: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the medians over the seeds of the values that every seed has."""
    common = set.intersection(*(set(of_seed) for of_seed in every))
    names = [
        name for name, value in every[0].items() if name in common and isinstance(value, float)
    ]
    return {name: statistics.median(result[name] for result in every) for name in names}


def name_of(run: str) -> str:
    """Return the name of a run's row and of its folder."""
    if run == BAG_OF_WORDS:
        return run
    return os.path.basename(_path_of(run)) + "-random" * run.startswith(pretrained.RANDOM)


def _parameters(run: str) -> str:
    if run == BAG_OF_WORDS:
        return ""
    try:
        return f"{load_config(_path_of(run)).param_count():,}"
    except InputError:  # the row of a run that failed for this reason
        return ""


def _path_of(run: str) -> str:
    return pretrained.locate(run.removeprefix(pretrained.RANDOM))


def speed_of(run: str) -> float | None:
    """Return the pieces/s of a run's pretraining, or None if it was not pretrained here."""
    result = RunDir(run).result() if RunDir(run).is_complete else {}
    speed = result.get("tokens_per_s")
    if speed is not None and not (has_numbers(result, ["tokens_per_s"]) and speed > 0):
        raise InputError(
            f"{RunDir(run).result_path!r}: `tokens_per_s` must be a positive number. Received: "
            f"{shortened(speed)}. Restore the file."
        )
    return speed
