"""The result of a run: the plots of its curves, and result.json."""

import itertools
import statistics

from albert_tf.runtime.plots import plot_metrics
from albert_tf.runtime.run_dir import RunDir
from pretraining.loop.losses import SUMMED
from pretraining.loop.selection import HELDOUT

LOSSES, ACCURACIES = zip(*(objective.metrics for objective in SUMMED), strict=True)
PANELS = {
    "loss": LOSSES,
    "accuracy": ACCURACIES,
    "learning rate": ("lr",),
    "gradient norm": ("grad_norm",),
    "tokens per second": ("tokens_per_s",),
    "held-out loss": tuple(HELDOUT + name for name in LOSSES),
    "held-out accuracy": tuple(HELDOUT + name for name in ACCURACIES),
}


def finish(run: RunDir) -> None:
    """Plot the curves and write the result: the last row, and values over the whole run."""
    rows = run.metrics("tokens_per_s", "step_ms")
    names = {name for row in rows for name in row}
    panels = {title: columns for title, columns in PANELS.items() if names & set(columns)}
    plot_metrics(run, panels, "step")
    speed = statistics.median(row["tokens_per_s"] for row in rows)
    ends = [row["step"] for row in rows]
    loops = [end - begin for begin, end in itertools.pairwise([0, *ends])]
    result = rows[-1] | {
        "tokens_per_s": speed,
        "training_s": sum(n * row["step_ms"] for n, row in zip(loops, rows, strict=True)) / 1000,
        "skipped": len(run.skipped()),
    }
    run.finish(result)
    # heldout/loss/pair repeats the same under the objective's own name.
    shown = {n: v for n, v in result.items() if not (n.startswith("heldout/") and "/pair" in n)}
    print(f"{run.path}: " + ", ".join(f"{name} {value:.4g}" for name, value in shown.items()))
