"""A check that TensorFlow runs in the process that first used it: its threads end in a fork."""

import os

from albert_tf.runtime.errors import InputError

_first_process: list[int] = []  # its id, once a model was built or loaded


def require_unforked() -> None:
    """Remember the process of the first call, and check that later calls are in the same process.

    Without the check, TensorFlow waits forever for threads that only the parent has.

    Raises:
      InputError: the process was forked after a call.
    """
    if not _first_process:
        _first_process.append(os.getpid())
    if _first_process[0] != os.getpid():
        raise InputError(
            "TensorFlow cannot be used after a fork, and a model was loaded before it: load the "
            "model in each worker, or use the start method spawn."
        )
