"""A call in a subprocess, whose memory is freed when it ends.

`concurrent.futures` is not used: after Ctrl-C its shutdown hung in one of three runs of the tests.
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
    """Return `function(*args)`, computed in a new process; its errors are raised here.

    The new process ends with this one, however this one ends.

    Args:
      what: describes the call in the error message, such as "lowers the step".
      function: the new process must be able to import it.
      *args: the arguments of `function`.

    Raises:
      InputError: the process ended without a result.
    """
    context = multiprocessing.get_context("spawn")  # fork is unsafe with TensorFlow's threads
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run_and_send, args=(sender, function, args), daemon=True)
    resource_tracker.ensure_running()  # else start() would start it and unblock signals
    # Ctrl-C reaches the whole process group, but only this process should handle it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    process.start()
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        sender.close()
        result, error = receiver.recv()
    except (EOFError, OSError):
        process.join()
        raise InputError(
            f"the process that {what} ended with status {process.exitcode} (negative if killed), "
            "probably because memory ran out. Free some memory, or use a machine with more."
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
