"""PNG curves of a run."""

import os

from albert_tf.runs import RunDir

_PANELS = {
    "loss": ("loss/mlm", "loss/pair"),
    "accuracy": ("accuracy/mlm", "accuracy/pair"),
    "learning rate": ("lr",),
    "gradient norm": ("grad_norm",),
    "tokens per second": ("tokens_per_s",),
}


def plot_training(run: RunDir) -> list[str]:
    """Draws the columns of metrics.jsonl over the step, one PNG a panel; returns the files."""
    from matplotlib.figure import Figure

    rows = run.metrics()
    os.makedirs(run.plots_path, exist_ok=True)
    paths = []
    for title, columns in _PANELS.items():
        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.add_subplot(xlabel="step", ylabel=title)
        for column in columns:
            points = [(row["step"], row[column]) for row in rows if column in row]
            if points:
                axes.plot(*zip(*points, strict=True), label=column)
        axes.grid(alpha=0.3)
        axes.legend()
        paths.append(os.path.join(run.plots_path, f"{title.replace(' ', '_')}.png"))
        figure.savefig(paths[-1], dpi=120)
    return paths
