"""PNG curves of a run."""

import os
from collections.abc import Mapping

from albert_tf.runs import RunDir


def plot_metrics(run: RunDir, panels: Mapping[str, tuple[str, ...]], unit: str) -> list[str]:
    """Draws columns of metrics.jsonl over `step`, one PNG a panel; returns the files.

    Args:
      panels: title -> the columns that share the panel.
      unit: what `step` counts, for the axis.
    """
    from matplotlib.figure import Figure

    rows = run.metrics()
    os.makedirs(run.plots_path, exist_ok=True)
    paths = []
    for title, columns in panels.items():
        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.add_subplot(xlabel=unit, ylabel=title)
        for column in columns:
            points = [(row["step"], row[column]) for row in rows if column in row]
            if points:
                axes.plot(*zip(*points, strict=True), label=column)
        axes.grid(alpha=0.3)
        axes.legend()
        paths.append(os.path.join(run.plots_path, f"{title.replace(' ', '_')}.png"))
        figure.savefig(paths[-1], dpi=120)
    return paths
