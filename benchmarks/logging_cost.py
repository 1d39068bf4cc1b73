"""Time what logging adds to a training step: metrics, TensorBoard, progress bar, guard check.

    python -m benchmarks.logging_cost --data=artifacts/records --experiment=laptop --steps=500

The output is one JSON line: the milliseconds of a step without and with logging, medians over the
loops of one run, and the share that logging adds. The run is written to a temporary folder; saving
is not counted.
"""

import dataclasses
import functools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from unittest import mock

from albert_tf.runtime import commands, devices
from albert_tf.runtime.run_dir import RunDir
from data.pipeline.batches import Mixture
from pretraining.experiments import experiment
from pretraining.loop.config import resolve
from pretraining.loop.divergence_guard import Guard
from pretraining.loop.training import train
from pretraining.loop.training_log import TrainingLog


@dataclasses.dataclass(frozen=True)
class LoggingCostOptions:
    """The command line of `benchmarks.logging_cost`."""

    data: str = commands.option("the records, as in pretraining.train", path=True)
    experiment: str = commands.option("as in pretraining.train", "laptop")
    steps: int = commands.option("steps of the run", 500)
    device: str = commands.option("as in pretraining.train", "auto")
    dry_run: bool = commands.option("check the options and measure nothing", False)
    set: tuple[str, ...] = commands.option("key=value, as for pretraining.train", ())


def main(options: LoggingCostOptions) -> None:
    """Train, then print the line."""
    records = Mixture.open(options.data)
    overrides = (f"loop.steps={options.steps}", "optimizer.warmup_steps=0")
    config = resolve(
        experiment(options.experiment), [*options.set, *overrides], records.manifest, options.device
    )
    if options.dry_run:
        print(f"{options.steps} steps of {options.experiment}")
        return
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as folder, mock.patch("builtins.print"):
        os.mkdir(run := os.path.join(folder, "run"))
        with _time_calls(TrainingLog, "write", seconds), _time_calls(Guard, "check", seconds):
            train(config, records, RunDir(run), devices.strategy(options.device))
        rows = RunDir(run).metrics()[1:]  # the first loop compiles
    step_ms = statistics.median(row["step_ms"] for row in rows)
    # Each loop calls the guard first, then the log.
    loops = [sum(durations) for durations in zip(seconds[2::2], seconds[3::2], strict=True)]
    logging_ms = 1000 * statistics.median(loops) / config.loop.steps_per_loop
    line = {
        "benchmark": "logging_cost",
        "experiment": options.experiment,
        "step_ms_without": round(step_ms, 3),
        "step_ms_with": round(step_ms + logging_ms, 3),
        "share": round(logging_ms / step_ms, 5),
    }
    print(json.dumps(line))


def _time_calls(owner: type, name: str, seconds: list[float]) -> mock._patch:
    function: Callable = getattr(owner, name)

    @functools.wraps(function)
    def timed(*args: object) -> object:
        start = time.perf_counter()
        result = function(*args)
        seconds.append(time.perf_counter() - start)
        return result

    return mock.patch.object(owner, name, timed)


if __name__ == "__main__":
    commands.run(main, LoggingCostOptions, __doc__)
