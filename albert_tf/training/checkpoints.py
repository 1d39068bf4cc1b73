"""A run's checkpoints: each is whole or absent, and of damaged ones the one before is taken."""

import contextlib
import glob
import os
import re
import shutil
from collections.abc import Callable

import tensorflow as tf

from albert_tf.models.checkpoints import DAMAGE, differences_from
from albert_tf.runtime.errors import InputError, MachineError

_INDEX = re.compile(r"ckpt-(\d+)\.index")


class Checkpoints:
    """Saves and restores what `checkpoint` tracks, in files named by the step.

    Args:
      source: the folder that is read, the run's own.
      target: the folder that is written: the same, but of several workers for one alone.
      keep: how many are kept of the latest, None: all until they are dropped.
    """

    def __init__(
        self, checkpoint: tf.train.Checkpoint, source: str, target: str, keep: int | None
    ) -> None:
        self._checkpoint, self._source, self._target = checkpoint, source, target
        self._keep = keep
        for cut_off in glob.glob(os.path.join(glob.escape(target), "ckpt-*_temp")):
            shutil.rmtree(cut_off, ignore_errors=True)
        self._manager = tf.train.CheckpointManager(checkpoint, target, max_to_keep=None)

    def save(self, step: int, also_keep: int | None = None) -> None:
        """Saves a step that is not there yet; a full disk or a kill leaves what was saved before.

        Then the earlier ones that are too many go, but not `also_keep`, and all later ones, which
        are of a past that training has left.

        Raises:
          MachineError: it could not be written; its parts are removed.
        """
        try:
            self._manager.save(checkpoint_number=step)
        except tf.errors.OpError as error:
            shutil.rmtree(os.path.join(self._target, f"ckpt-{step}_temp"), ignore_errors=True)
            raise MachineError(
                f"{self._target}: checkpoint {step} could not be written "
                f"({error.message.rpartition('; ')[2]}). What was saved before is whole: make room "
                "and give the same command again."
            ) from None
        if self._keep:
            until = [saved for saved in _steps_in(self._target) if saved <= step]
            kept = {also_keep, *until[: self._keep]}
            self.drop(lambda old: old not in kept)

    def drop(self, is_unwanted: Callable[[int], bool]) -> None:
        """Removes those of some steps."""
        steps = _steps_in(self._target)
        unwanted = set(filter(is_unwanted, steps))
        if not unwanted:
            return
        remaining = [f"ckpt-{step}" for step in sorted({*steps} - unwanted)]
        # First what names the latest: a kill in between leaves files that nobody reads. Names
        # without a folder stay so where the folder is absolute, and a run can be moved.
        if remaining:
            folder = os.path.abspath(self._target)
            tf.compat.v1.train.update_checkpoint_state(folder, remaining[-1], remaining)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(self._target, "checkpoint"))
        for step in unwanted:
            files = glob.glob(os.path.join(glob.escape(self._target), f"ckpt-{step}.*"))
            for path in sorted(files, reverse=True):  # the index, without which it is none, first
                os.remove(path)

    def steps(self) -> list[int]:
        """Of what has been saved in the source, the latest first."""
        return _steps_in(self._source)

    def restore(self, until: int | None = None) -> int | None:
        """Restores the latest checkpoint that can be read, at step `until` or before it.

        Returns its step, None if none was saved, or of those `until` a step none can be read.

        Raises:
          InputError: some were saved, and none can be read; or one is of another model.
        """
        steps = [n for n in _steps_in(self._source) if until is None or n <= until]
        for step in steps:
            path = os.path.join(self._source, f"ckpt-{step}")
            try:
                wrong = differences_from(self._checkpoint, path)
                if not wrong:
                    self._checkpoint.restore(path).assert_consumed()
                    return step
            except DAMAGE as error:
                print(f"warning: {path} is damaged, the one before is tried: {error}", flush=True)
                continue
            raise InputError(
                f"{path} is of another model than the run's config.json describes: {wrong} Put the "
                "run's own checkpoints back, or remove the folder to begin anew."
            )
        if steps and until is None:
            raise InputError(
                f"no checkpoint in {self._source!r} can be read: remove the folder to begin anew, "
                "or put back a copy."
            )
        return None


def _steps_in(folder: str) -> list[int]:
    """Of what has been saved, the latest first. An index is written when the data is there."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    found = (_INDEX.fullmatch(name) for name in names)
    return sorted((int(match[1]) for match in found if match), reverse=True)
