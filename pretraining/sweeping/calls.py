"""Commands that another command runs, each in a process of its own, and timed training."""

import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable

from albert_tf.runtime import programs
from albert_tf.runtime.run_dir import RunDir

_TIMED_LOOPS = 4  # after the first
# Overrides for a run that is only timed.
_TIMING_OVERRIDES = (
    "optimizer.warmup_steps=0",
    "optimizer.schedule_steps=0",
    "optimizer.decay_steps=0",
    "evaluation.every=0",
    "evaluation.patience=0",
    "loop.export=none",
)


class CommandError(Exception):
    """The failure of a command that another one runs."""


def call(module: str, *flags: str) -> None:
    """Run a command of this project in a separate process.

    Raises:
      CommandError: the command failed, after printing its own error.
    """
    # In a group of its own, the command does not get Ctrl-C itself: a second signal would end it
    # at once.
    process = subprocess.Popen(programs.process(module, *flags), process_group=0)
    try:
        status = process.wait()
    except BaseException:  # this process is ending; so must the command, after saving
        process.terminate()
        try:
            process.wait()
        except BaseException:  # a second signal ends both at once; what is saved stays
            process.kill()
            process.wait()
            raise
        raise
    if status:
        raise CommandError(f"{module} ended with status {status}")


def steps_within(
    seconds: float, train: Callable[..., None], steps_per_loop: int, folder: str
) -> int:
    """Return how many steps take some seconds, from a run of a few loops.

    The first loop, which compiles, does not count.

    Args:
      seconds: the time to fill.
      train: called with a new run folder and overrides of the configuration; trains it.
      steps_per_loop: the steps of a loop.
      folder: where the run is, until it has been timed.

    Raises:
      CommandError: the training failed.
    """
    steps = (1 + _TIMED_LOOPS) * steps_per_loop
    with tempfile.TemporaryDirectory(prefix=".timing-", dir=folder) as temporary:
        run = RunDir(os.path.join(temporary, "run"))
        train(run, *_TIMING_OVERRIDES, f"loop.steps={steps}")
        step_ms = statistics.median(row["step_ms"] for row in run.metrics("step_ms")[1:])
    return max(1, round(1000 * seconds / step_ms))
