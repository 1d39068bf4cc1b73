"""Detection of steps whose loss or gradient is not finite, and the return to a checkpoint."""

import json
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from albert_tf.runtime.run_dir import RunDir
from pretraining.loop.config import GuardConfig

# number of a batch -> (folder, epoch, record) of each of its records
Numbers = Callable[[int], list[tuple[str, int, int]]]


class Guard(tf.Module):
    """A counter and log of skipped steps that decides when to restore the last checkpoint.

    Its variables are part of the checkpoint, so a resumed run decides as an uninterrupted run
    would.

    Attributes:
      offset: int64, the number of batches of the stream that were passed over. Step s trains on
        batch s + offset.
      last_good: int64, the step of the checkpoint to restore: the last one saved because the
        configuration required it, not because of a signal.
    """

    def __init__(self, config: GuardConfig) -> None:
        super().__init__(name="guard")
        self._config = config
        self.offset = tf.Variable(0, trainable=False, dtype=tf.int64, name="offset")
        self.last_good = tf.Variable(0, trainable=False, dtype=tf.int64, name="last_good")
        self._consecutive = tf.Variable(0, trainable=False, dtype=tf.int64, name="consecutive")
        self._restores = tf.Variable(0, trainable=False, dtype=tf.int64, name="restores")

    def restart(self, step: int, run: RunDir) -> None:
        """Drop the log rows of steps that a run resumed at `step` will repeat."""
        now = int(self._restores.numpy()), step
        rows = [row for row in run.skipped() if (row["restores"], row["step"]) < now]
        if os.path.isfile(run.skipped_path):
            with outputs.new_text(run.skipped_path) as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)

    @property
    def is_in_streak(self) -> bool:
        """True if the last step was skipped."""
        return bool(self._consecutive.numpy())

    def check(self, step: int, skipped: np.ndarray, run: RunDir, numbers: Numbers) -> bool:
        """Log the skipped steps, and return True if too many of them were in a row.

        Each skipped step gets a row in the run's skipped.jsonl with the records of its batch and
        the number of restores before it.

        Args:
          step: the number of steps done.
          skipped: float [count], for the last `count` steps: 1 where skipped.
          run: the run whose log is written.
          numbers: returns the records of a batch.
        """
        run_length = max_length = int(self._consecutive.numpy())
        for number, is_skipped in enumerate(skipped, start=step - len(skipped)):
            run_length = run_length + 1 if is_skipped else 0
            max_length = max(max_length, run_length)
            if is_skipped:
                batch = numbers(number + int(self.offset.numpy()))
                row = {"restores": int(self._restores.numpy()), "step": number, "records": batch}
                with open(run.skipped_path, "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
        self._consecutive.assign(run_length)
        if count := int(skipped.sum()):
            print(
                f"warning: {count} of the {len(skipped)} steps up to step {step} had a loss or "
                f"gradient that was not finite and were skipped. Records: {run.skipped_path}",
                flush=True,
            )
        return max_length > self._config.max_consecutive

    def roll_back(self, step: int, restore: Callable[[int], int | None]) -> int:
        """Restore `last_good`, or the last readable checkpoint before it; return its step.

        Training then passes over the batches since that step.

        Args:
          step: the number of steps done.
          restore: restores the last readable checkpoint up to a step and returns its step; returns
            None if there is none.

        Raises:
          InputError: checkpoints were already restored `max_restores` times, or none can be read.
        """
        offset, restores = int(self.offset.numpy()), int(self._restores.numpy())
        limit = self._config.max_consecutive
        if restores >= self._config.max_restores:
            raise InputError(
                f"training diverged at step {step}: more than {limit} steps in a row were not "
                f"finite, after {restores} restores. Start a new run with a lower "
                "`optimizer.learning_rate` or more `optimizer.warmup_steps`."
            )
        last_good = int(self.last_good.numpy())
        restored = restore(last_good)
        if restored is None:
            raise InputError(
                f"training diverged at step {step}: more than {limit} steps in a row were not "
                f"finite, and no checkpoint up to step {last_good} can be read. Put back a copy of "
                "one, or start a new run."
            )
        self.offset.assign(offset + step - restored)
        self._restores.assign(restores + 1)
        self._consecutive.assign(0)
        print(
            f"warning: more than {limit} steps in a row were not finite: going back from step "
            f"{step} to {restored} and skipping the {step - restored} batches since "
            f"(restore {restores + 1} of {self._config.max_restores})",
            flush=True,
        )
        return restored
