"""The folder of each task in a folder of several datasets."""

import os
from collections.abc import Sequence

from albert_tf.runtime.errors import InputNotFoundError, reading

_SHOWN = 5  # files in a message
# Folders that serve several tasks, whose files have different names in them.
_DATA_SETS = {
    "race-middle": ("race",),
    "race-high": ("race",),
    "squad1": ("squad",),
    "squad2": ("squad",),
    "sts": ("sts-b",),
}


def task_folder(data_dir: str, task: str, is_only: bool = False) -> str:
    """Return the folder named after the task, in any case, or else after its dataset.

    If there is none, the only task's files may be in `data_dir` itself.

    Raises:
      InputNotFoundError: there is no such folder.
    """
    with reading(data_dir):
        names = sorted(os.listdir(data_dir)) if os.path.isdir(data_dir) else []
    wanted = (task, *_DATA_SETS.get(task, ()))
    folders = [name for candidate in wanted for name in names if name.lower() == candidate]
    if folders:
        return os.path.join(data_dir, folders[0])
    if is_only and any("train" in name.lower() for name in names):  # as in every dataset
        return data_dir
    itself = " and no training part in that folder itself" if is_only else ""
    raise InputNotFoundError(
        f"--data_dir: no folder {' or '.join(wanted)} in {data_dir!r}{itself} (working directory "
        f"{os.getcwd()}), which contains {_listed(names)}."
    )


def _listed(names: Sequence[str]) -> str:
    shown, rest = ", ".join(names[:_SHOWN]), len(names) - _SHOWN
    return (shown or "nothing") + (f" and {rest:,} more" if rest > 0 else "")
