"""A call in a process of its own, whose memory comes back when it ends."""

import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from albert_tf.runtime.errors import InputError
from data.building.workers import exit_with_parent

Result = TypeVar("Result")


def call_in_subprocess(what: str, function: Callable[..., Result], *args: object) -> Result:
    """`function(*args)`, which a new process imports and calls; its errors are raised here.

    That process ends with this one, however this one ends.

    Raises:
      InputError: it ended without a result; `what` says in the message what it did.
    """
    context = multiprocessing.get_context("spawn")  # fork is unsafe beside TensorFlow's threads
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(1, context, exit_with_parent)
    # Ctrl-C reaches the whole group: it is this process's to answer.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        future = pool.submit(function, *args)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return future.result()
    except BrokenProcessPool:
        raise InputError(
            f"the process that {what} was killed, probably for want of memory: try again with "
            "more, or with nothing beside it."
        ) from None
    finally:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        pool.shutdown()
