"""What a run does about steps whose loss or gradient was not finite."""

import json
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from albert_tf.runtime import outputs
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from pretraining.loop.config import GuardConfig

# step -> (folder, epoch, record) of its batch
Numbers = Callable[[int], list[tuple[str, int, int]]]


def skipped_steps(run: RunDir) -> list[dict]:
    """The lines of the run's skipped.jsonl."""
    if not os.path.isfile(run.skipped_path):
        return []
    with open(run.skipped_path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


class Guard(tf.Module):
    """Counts and logs the skipped steps, and says when to go back to the last checkpoint.

    Its variables are part of the checkpoint, so that a restart decides as the run would have.

    Attributes:
      offset: int64, batches of the stream that were passed over: step s trains on batch s + offset.
      last_good: int64, the step of the checkpoint to go back to: the last that the run saves by its
        configuration, not because of a signal.
    """

    def __init__(self, config: GuardConfig) -> None:
        super().__init__(name="guard")
        self._config = config
        self.offset = tf.Variable(0, trainable=False, dtype=tf.int64, name="offset")
        self.last_good = tf.Variable(0, trainable=False, dtype=tf.int64, name="last_good")
        self._consecutive = tf.Variable(0, trainable=False, dtype=tf.int64, name="consecutive")
        self._restores = tf.Variable(0, trainable=False, dtype=tf.int64, name="restores")

    def restart(self, step: int, run: RunDir) -> None:
        """Drops the lines of steps that a restart at `step` takes again."""
        now = int(self._restores.numpy()), step
        kept = [row for row in skipped_steps(run) if (row["restores"], row["step"]) < now]
        if os.path.isfile(run.skipped_path):
            with outputs.new_file(run.skipped_path) as partial:
                with open(partial, "w", encoding="utf-8") as file:
                    file.writelines(json.dumps(row) + "\n" for row in kept)

    @property
    def is_in_streak(self) -> bool:
        """Whether the last step was skipped."""
        return bool(self._consecutive.numpy())

    def check(self, step: int, skipped: np.ndarray, run: RunDir, numbers: Numbers) -> bool:
        """Looks at the steps up to `step`, float [count], 1 where skipped; True: too many in a row.

        Each goes into the run's skipped.jsonl with the records of its batch, and how often training
        had gone back before.
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
                f"warning: the loss or gradient of {count} of the {len(skipped)} steps up to "
                f"{step} was not finite: they changed nothing. Their records: {run.skipped_path}",
                flush=True,
            )
        return max_length > self._config.max_consecutive

    def roll_back(self, step: int, restore: Callable[[int], int | None]) -> int:
        """Goes back to `last_good`, or to what can be read before it; returns the step of that.

        `restore` restores the latest until a step, and returns its step. The data since is passed
        over.

        Raises:
          InputError: `max_restores` times was not enough, or there is nothing to go back to.
        """
        offset, restores = int(self.offset.numpy()), int(self._restores.numpy())
        limit = self._config.max_consecutive
        if restores >= self._config.max_restores:
            raise InputError(
                f"training diverged: more than {limit} steps in a row were not finite at step "
                f"{step}, after going back {restores} times. Lower `optimizer.learning_rate` or "
                "lengthen `optimizer.warmup_steps`, in a new run."
            )
        last_good = int(self.last_good.numpy())
        restored = restore(last_good)
        if restored is None:
            raise InputError(
                f"training diverged: more than {limit} steps in a row were not finite at step "
                f"{step}, and no checkpoint until step {last_good} can be read to go back to: put "
                "back a copy, or begin a new run."
            )
        self.offset.assign(offset + step - restored)
        self._restores.assign(restores + 1)
        self._consecutive.assign(0)
        print(
            f"warning: more than {limit} steps in a row were not finite: back from step {step} to "
            f"{restored}, passing over the {step - restored} batches since "
            f"({restores + 1} of {self._config.max_restores} times)",
            flush=True,
        )
        return restored
