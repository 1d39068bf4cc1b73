"""A call in a process of its own, whose memory comes back when it ends.

Not by `concurrent.futures`: after Ctrl-C its shutdown hung in one of three runs of the suite.
"""

import multiprocessing
import signal
import traceback
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
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
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run_and_send, args=(sender, function, args), daemon=True)
    resource_tracker.ensure_running()  # which the first process would start, and unblock signals
    # Ctrl-C reaches the whole group: it is this process's to answer.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    process.start()
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        sender.close()
        result, error = receiver.recv()
    except (EOFError, OSError):
        process.join()
        raise InputError(
            f"the process that {what} ended with status {process.exitcode}, killed if that is "
            "negative, probably for want of memory: try again with more, or with nothing beside it."
        ) from None
    finally:
        process.kill()
        process.join()
        receiver.close()
    if error is not None:
        raise error
    return result


def _run_and_send(sender: Connection, function: Callable, args: tuple) -> None:
    exit_with_parent()
    try:
        result, error = function(*args), None
    except Exception as raised:
        raised.add_note("".join(traceback.format_exception(raised)))
        result, error = None, raised
    sender.send((result, error))
