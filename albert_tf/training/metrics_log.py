"""The log of a run's metrics, with the same rows in metrics.jsonl and TensorBoard."""

import atexit
import contextlib
import glob
import os
import tempfile
from collections.abc import Mapping

import tensorflow as tf

from albert_tf.runtime.run_dir import RunDir


def writable_run(run: RunDir, is_chief: bool) -> RunDir:
    """Return the run for the chief, and a temporary folder for other workers.

    The temporary folder is removed when the process ends.
    """
    if is_chief:
        return run
    scratch = tempfile.TemporaryDirectory()
    atexit.register(scratch.cleanup)
    return RunDir(scratch.name)


class MetricsLog(contextlib.ExitStack):
    """The log of a run's metrics. Call `rewind` before `add`.

    >>> with MetricsLog(run) as log:
    ...     log.rewind(step=0)
    ...     log.add({"step": 10, "loss/mlm": 5.3})
    """

    def __init__(self, run: RunDir) -> None:
        super().__init__()
        self._run = run

    def rewind(self, step: int) -> None:
        """Continue after `step` and drop the rows of later steps."""
        self.close()
        self._run.truncate_metrics(step)
        # Rewrite the events from the remaining rows: TensorBoard would show dropped steps twice.
        events = os.path.join(glob.escape(self._run.tensorboard_path), "events.out.tfevents.*")
        for path in glob.glob(events):
            os.remove(path)
        self._summaries = tf.summary.create_file_writer(self._run.tensorboard_path)
        self.callback(self._summaries.close)
        for row in self._run.metrics():
            self._summarize(row)

    def add(self, row: Mapping[str, float]) -> None:
        """Append a row of numbers, one of which is `step`."""
        self._run.add_metrics(row)
        self._summarize(row)

    def _summarize(self, row: Mapping[str, float]) -> None:
        with self._summaries.as_default(step=int(row["step"])):
            for name, value in row.items():
                if name != "step":
                    tf.summary.scalar(name, float(value))
