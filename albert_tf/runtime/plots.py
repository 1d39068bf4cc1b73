"""PNG figures: metric curves of a run, values with error bars, values per layer or sample size."""

import os
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from albert_tf.runtime import extras
from albert_tf.runtime.errors import writing_temporary
from albert_tf.runtime.files import outputs
from albert_tf.runtime.run_dir import RunDir

if TYPE_CHECKING:  # slow to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = tuple[float, float, float, float]  # x, y, and the lowest and highest y


def plot_metrics(run: RunDir, panels: Mapping[str, tuple[str, ...]], unit: str) -> list[str]:
    """Plot columns of metrics.jsonl over `step`, one PNG per panel.

    Args:
      run: the run to plot.
      panels: title -> the columns that share the panel.
      unit: the unit of `step`, for the x axis.

    Returns:
      The paths of the PNG files.
    """
    rows = run.metrics()
    os.makedirs(run.plots_path, exist_ok=True)
    paths = []
    for title, columns in panels.items():
        figure, (axes,) = _figure(1)
        axes.set(xlabel=unit, ylabel=title)
        for column in columns:
            points = [(row["step"], row[column]) for row in rows if column in row]
            if points:
                axes.plot(*zip(*points, strict=True), label=column)
        axes.legend()
        paths.append(os.path.join(run.plots_path, f"{title.replace(' ', '_')}.png"))
        _save(figure, paths[-1])
    return paths


def plot_lines(
    path: str, panels: Mapping[str, Mapping[str, Sequence[float]]], unit: str, first: int
) -> None:
    """Plot lines into one PNG, with one panel per title.

    Args:
      path: the PNG file to write.
      panels: title -> label -> the values of a line.
      unit: the unit of the x axis.
      first: the x of each line's first value; the next ones are at first + 1, first + 2, ...
    """
    figure, every_axes = _figure(len(panels))
    for axes, (title, lines) in zip(every_axes, panels.items(), strict=True):
        axes.set(xlabel=unit, ylabel=title)
        axes.xaxis.set_major_locator(_matplotlib("ticker").MaxNLocator(integer=True))
        for label, values in lines.items():
            axes.plot(range(first, first + len(values)), values, marker=".", label=label)
        axes.legend()
    _save(figure, path)


def plot_errors(
    path: str, labels: Sequence[str], panels: Mapping[str, Sequence[tuple[float, float]]]
) -> None:
    """Plot points with error bars into one PNG, with one panel per title.

    Args:
      path: the PNG file to write.
      labels: the labels of the points, from top to bottom.
      panels: title -> (value, error) of each label; NaN if there is none.
    """
    figure, every_axes = _figure(len(panels), width=4, height=1.5 + 0.4 * len(labels))
    rows = range(len(labels))
    for axes, (title, points) in zip(every_axes, panels.items(), strict=True):
        values, errors = zip(*points, strict=True)
        axes.errorbar(values, rows, xerr=errors, fmt="o", capsize=4)
        locator = _matplotlib("ticker").MaxNLocator(4)  # more labels would overlap
        axes.xaxis.set_major_locator(locator)
        axes.set(xlabel=title, yticks=rows, yticklabels=[], ylim=(len(labels) - 0.5, -0.5))
    every_axes[0].set_yticklabels(labels)
    _save(figure, path)


def plot_curves(path: str, panels: Mapping[str, Mapping[str, Sequence[Point]]], unit: str) -> None:
    """Plot lines with ranges over a logarithmic x axis into one PNG, with one panel per title.

    Args:
      path: the PNG file to write.
      panels: title -> label -> the points of a line, in the order of x.
      unit: the unit of the x axis.
    """
    figure, every_axes = _figure(len(panels))
    for axes, (title, lines) in zip(every_axes, panels.items(), strict=True):
        axes.set(xlabel=unit, ylabel=title, xscale="log")
        for label, points in lines.items():
            x, y, low, high = zip(*points, strict=True)
            below, above = (
                [abs(end - middle) for end, middle in zip(ends, y, strict=True)]
                for ends in (low, high)
            )
            axes.errorbar(x, y, yerr=(below, above), marker=".", capsize=4, label=label)
        ticks = sorted({point[0] for points in lines.values() for point in points})
        axes.set_xticks(ticks, [f"{x:,.0f}" for x in ticks])
        axes.minorticks_off()
        axes.legend(loc="lower right")
    _save(figure, path)


def plot_reliability(path: str, curves: Mapping[str, Sequence[np.ndarray]]) -> None:
    """Plot the share of right answers over the mean probability into one PNG.

    Args:
      path: the PNG file to write.
      curves: label -> probability, accuracy and number of the answers in each bin. The area of a
        point shows its share of the answers.
    """
    figure, (axes,) = _figure(1, width=5)
    axes.plot((0, 1), (0, 1), color="gray", linestyle="--", label="honest")
    for label, (probability, accuracy, size) in curves.items():
        (line,) = axes.plot(probability, accuracy, label=label, alpha=0.6)
        axes.scatter(probability, accuracy, 400 * size / size.sum(), color=line.get_color())
    axes.set(xlabel="probability", ylabel="share of right answers", xlim=(0, 1), ylim=(0, 1))
    axes.legend(loc="upper left")
    _save(figure, path)


def require_plotting() -> None:
    """Check that figures can be drawn, before the work whose results they show.

    Raises:
      InputError: Matplotlib is missing.
      MachineError: it finds no writable folder for its settings.
    """
    _matplotlib("figure")


def _matplotlib(module: str) -> ModuleType:
    with writing_temporary():  # its settings, where the home folder cannot be written
        return extras.load(f"matplotlib.{module}", "train", "plotting")


def _save(figure: "Figure", path: str) -> None:
    with outputs.new_file(path) as partial:
        figure.savefig(partial, format="png", dpi=120)


def _figure(panels: int, width: float = 6, height: float = 4) -> tuple["Figure", Sequence["Axes"]]:
    """Return a figure with `panels` axes side by side, each `width` x `height` inches."""
    figure = _matplotlib("figure").Figure(figsize=(width * panels, height), layout="constrained")
    every_axes = list(figure.subplots(1, panels, squeeze=False)[0])
    for axes in every_axes:
        axes.grid(alpha=0.3)
    return figure, every_axes
