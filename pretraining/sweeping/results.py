"""The results of a sweep: results.csv, a table and a plot of means over the seeds."""

import csv
import math
import statistics
from collections.abc import Sequence
from typing import Any

from albert_tf.runtime.files import outputs
from albert_tf.runtime.plots import plot_errors
from albert_tf.runtime.report_text import MIN_EXAMPLES, markdown_table
from data.objectives.registry import OBJECTIVES

TRAINING = "train/"  # prefix of the metrics of the training itself
COMPARED = ("loss/", "bits_per_character/", "accuracy/", "probe/")
Result = dict[str, Any]


def write_csv(path: str, results: Sequence[Result]) -> None:
    """Write a row per member; columns are in the order in which they first appear."""
    columns = dict.fromkeys(name for result in results for name in result)
    with outputs.new_file(path) as partial:
        with open(partial, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(columns))
            writer.writeheader()
            writer.writerows(results)


def compare(results: Sequence[Result], image: str) -> str:
    """Return a Markdown table of the metrics of each configuration, and plot them.

    The metrics are the held-out ones or, if there are none, the last ones of training. The plot
    `image`, a PNG, has bits per character and accuracies, or the losses if there are neither, with
    error bars.
    """
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result["configuration"], []).append(result)
    metrics = _metrics(results)
    points = {m: [mean_and_error(members, m) for members in groups.values()] for m in metrics}
    losses = ("loss/", f"{TRAINING}loss/")
    drawn = {metric: point for metric, point in points.items() if not metric.startswith(losses)}
    plot_errors(image, list(groups), drawn or points)
    rows = [
        (
            name,
            str(len(members)),
            f"{members[0]['parameters']:,}",
            f"{members[0][f'{TRAINING}step']:,}",
            *(_cell(*points[metric][number]) for metric in metrics),
        )
        for number, (name, members) in enumerate(groups.items())
    ]
    table = markdown_table(("configuration", "runs", "parameters", "steps", *metrics), rows)
    note = "±: standard error of the mean over the runs; for one run, over its held-out sample"
    return f"{table}\n\n{note}"


def _metrics(results: Sequence[Result]) -> list[str]:
    names = dict.fromkeys(name for result in results for name in result)
    # The metrics of a head, as in /pair, repeat those of the objective that has another name.
    heads = {objective.head.name for objective in OBJECTIVES.values()} - OBJECTIVES.keys()
    compared = [name for name in names if name.startswith(COMPARED)]
    heldout = [name for name in compared if name.rpartition("/")[2] not in heads]
    training = tuple(TRAINING + kind for kind in COMPARED)
    return heldout or [name for name in names if name.startswith(training)]


def mean_and_error(members: Sequence[Result], metric: str) -> tuple[float, float]:
    """Return the mean over the members that have the metric, and its standard error.

    The error is deviation / sqrt(n) for several members. For one it is the standard error that its
    evaluation gives for its own sample, if that has `MIN_EXAMPLES` examples. Both values are NaN if
    unknown.
    """
    values = [member[metric] for member in members if metric in member]
    if not all(map(math.isfinite, values)):
        return math.nan, math.nan
    if len(values) > 1:
        return statistics.mean(values), statistics.stdev(values) / math.sqrt(len(values))
    # accuracy/sop has standard_error/sop, probe/sop has standard_error/probe_sop.
    what = metric.removeprefix("accuracy/").replace("/", "_")
    key, count = f"standard_error/{what}", f"count/{what}"
    errors = [
        member[key]
        for member in members
        # An error of 0 is that of a single document.
        if metric in member and member.get(key) and member.get(count, MIN_EXAMPLES) >= MIN_EXAMPLES
    ]
    return (values or [math.nan])[0], (errors or [math.nan])[0]


def _cell(mean: float, error: float) -> str:
    if math.isnan(mean):
        return ""
    return f"{mean:.4f}" if math.isnan(error) else f"{mean:.4f} ± {error:.4f}"
