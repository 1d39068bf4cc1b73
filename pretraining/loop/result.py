"""The result of a run: the plots of its curves, and result.json."""

import itertools
import statistics
from collections.abc import Sequence

from albert_tf.runtime.plots import plot_metrics
from albert_tf.runtime.run_dir import RunDir
from data.objectives.objective import Objective
from pretraining.loop.selection import HELDOUT

SPEEDS = {"tokens_per_s", "sequences_per_s", "step_ms", "flops_utilisation"}


def _panels(objectives: Sequence[Objective]) -> dict[str, tuple[str, ...]]:
    losses, accuracies = zip(*(objective.metrics for objective in objectives), strict=True)
    return {
        "loss": losses,
        "accuracy": accuracies,
        "learning rate": ("lr",),
        "gradient norm": ("grad_norm",),
        "tokens per second": ("tokens_per_s",),
        "held-out loss": tuple(HELDOUT + name for name in losses),
        "held-out accuracy": tuple(HELDOUT + name for name in accuracies),
    }


def finish(run: RunDir, objectives: Sequence[Objective]) -> None:
    """Plot the curves and write the result: the last row, and values over the whole run.

    Speeds are medians: the last loop may be short, or the first after a restart, which compiles.
    """
    rows = run.metrics("tokens_per_s", "step_ms")
    names = {name for row in rows for name in row}
    panels = {
        title: columns for title, columns in _panels(objectives).items() if names & set(columns)
    }
    plot_metrics(run, panels, "step")
    speeds = {
        name: statistics.median(row[name] for row in rows if name in row) for name in SPEEDS & names
    }
    ends = [row["step"] for row in rows]
    loops = [end - begin for begin, end in itertools.pairwise([0, *ends])]
    result = rows[-1] | speeds
    result |= {
        "training_s": sum(n * row["step_ms"] for n, row in zip(loops, rows, strict=True)) / 1000,
        "skipped": len(run.skipped()),
    }
    run.finish(result)
    # heldout/loss/pair repeats the same under the objective's own name.
    repeated = {
        name
        for objective in objectives
        if objective.head.name != objective.name
        for name in result
        if name.startswith(HELDOUT) and name.endswith(f"/{objective.head.name}")
        if name.removesuffix(objective.head.name) + objective.name in result
    }
    shown = {name: value for name, value in result.items() if name not in repeated}
    print(f"{run.path}: " + ", ".join(f"{name} {value:.4g}" for name, value in shown.items()))
