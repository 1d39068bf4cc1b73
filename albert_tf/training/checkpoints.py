"""A run's checkpoints: each is complete or absent, and damaged ones are skipped."""

import contextlib
import glob
import os
import re
import shutil
from collections.abc import Callable, Collection

import tensorflow as tf

from albert_tf.models.checkpoints import DAMAGE, differences_from, latest_in, readable
from albert_tf.runtime.errors import InputError, MachineError
from albert_tf.runtime.files import outputs

_INDEX = re.compile(r"ckpt-(\d+)\.index")


class Checkpoints:
    """The checkpoints of everything that `checkpoint` tracks, in files named by the step.

    Args:
      checkpoint: the objects to save and restore.
      source: the folder to read, which is the run's own.
      target: the folder to write: the same one, except for workers other than the chief.
      keep: the number of latest checkpoints to keep; None keeps all until they are dropped.
    """

    def __init__(
        self, checkpoint: tf.train.Checkpoint, source: str, target: str, keep: int | None
    ) -> None:
        self._checkpoint, self._source, self._target = checkpoint, source, target
        self._keep = keep
        for cut_off in glob.glob(os.path.join(glob.escape(target), "ckpt-*_temp")):
            shutil.rmtree(cut_off, ignore_errors=True)
        try:
            latest_in(target)
        except InputError:
            if not (steps := steps_in(target)):
                raise
            self._name_latest(steps)
        self._manager = tf.train.CheckpointManager(checkpoint, target, max_to_keep=None)

    def save(self, step: int, also_keep: int | None = None) -> None:
        """Save a step that has no checkpoint yet; a full disk or a kill leaves earlier ones intact.

        If `keep` is set, also remove surplus earlier checkpoints, except `also_keep`, and all later
        ones, which training has rolled back.

        Raises:
          MachineError: the checkpoint could not be written; its partial files are removed.
        """
        try:
            self._manager.save(checkpoint_number=step)
            outputs.sync_all(self._target)  # before earlier ones are removed
        except (tf.errors.OpError, OSError) as error:
            shutil.rmtree(os.path.join(self._target, f"ckpt-{step}_temp"), ignore_errors=True)
            self._remove(step)
            with contextlib.suppress(tf.errors.OpError, OSError):  # else `restore` does it
                self._name_latest(steps_in(self._target))
            words = str(error.strerror if isinstance(error, OSError) else error.message)
            raise MachineError(
                f"{self._target}: checkpoint {step} could not be written "
                f"({words.rpartition('; ')[2]}). Earlier checkpoints are intact. Make room and run "
                "the same command again."
            ) from None
        if self._keep:
            until = [saved for saved in steps_in(self._target) if saved <= step]
            wanted = {also_keep, *until[: self._keep]}
            self.drop(lambda old: old not in wanted)

    def drop(self, is_unwanted: Callable[[int], bool]) -> None:
        """Remove the checkpoints of the steps for which `is_unwanted` is true."""
        steps = steps_in(self._target)
        unwanted = set(filter(is_unwanted, steps))
        if not unwanted:
            return
        # First update the file that names the latest: a kill in between leaves only unused files.
        self._name_latest({*steps} - unwanted)
        for step in unwanted:
            self._remove(step)

    def _name_latest(self, steps: Collection[int]) -> None:
        """Name the last of `steps` in the file `checkpoint`, if any, which readers take.

        With an absolute folder, TensorFlow stores the names without one, so that a run can be
        moved.
        """
        names, folder = [f"ckpt-{step}" for step in sorted(steps)], os.path.abspath(self._target)
        if names:
            tf.compat.v1.train.update_checkpoint_state(folder, names[-1], names)
            return
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(folder, "checkpoint"))

    def _remove(self, step: int) -> None:
        files = glob.glob(os.path.join(glob.escape(self._target), f"ckpt-{step}.*"))
        for path in sorted(files, reverse=True):  # the index first: it defines a checkpoint
            os.remove(path)

    def steps(self) -> list[int]:
        """Return the steps of the checkpoints in the source, the latest first."""
        return steps_in(self._source)

    def restore(self, until: int | None = None) -> int | None:
        """Restore the latest checkpoint that can be read, at step `until` or before it.

        Return its step. Return None if there is no checkpoint, or if `until` is given and none up
        to it can be read. If the source is also the target, its file `checkpoint` names the
        restored one from then on: a kill after saving may have left an earlier one there.

        Raises:
          InputError: no checkpoint can be read although there are some, and `until` is None; or a
            checkpoint is of another model.
        """
        steps = [n for n in steps_in(self._source) if until is None or n <= until]
        for step in steps:
            path = os.path.join(self._source, f"ckpt-{step}")
            try:
                with readable(path) as file:
                    wrong = differences_from(self._checkpoint, file)
                    if not wrong:
                        self._checkpoint.restore(file).assert_consumed()
            except DAMAGE as error:
                print(f"warning: {path} is damaged, trying the one before: {error}", flush=True)
                continue
            if wrong:
                raise InputError(
                    f"{path} does not match the model of the run's config.json: {wrong} Restore "
                    "the run's own checkpoints, or remove the folder to start over."
                )
            if self._source == self._target and latest_in(self._source) != path:
                self._name_latest([n for n in steps if n <= step])
            return step
        if steps and until is None:
            raise InputError(
                f"no checkpoint in {self._source!r} can be read. Remove the folder to start over, "
                "or restore a copy of it."
            )
        return None


def steps_in(folder: str) -> list[int]:
    """Return the steps saved in a folder, the latest first; an index is written after its data."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    matches = (_INDEX.fullmatch(name) for name in names)
    return sorted((int(match[1]) for match in matches if match), reverse=True)
