"""One function in several processes, over a stream of items, in order and in bounded memory.

`Executor.map` takes in all items before it yields a result: 150 MB of text raised the peak of
memory to 50 MB, against 15 here, and it grows with the text.
"""

import contextlib
import multiprocessing
import os
import pickle
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from typing import Any, TypeVar

from albert_tf.runtime.errors import MachineError

TEXT_BYTES_PER_WORKER = 2 * 2**20  # for less text, starting a process costs more than it saves

Item = TypeVar("Item")
Result = TypeVar("Result")


def useful_workers(max_workers: int, text_bytes: int) -> int:
    """Processes worth starting for so much text: at most `max_workers`, where 0 is one per core."""
    return min(max_workers or os.cpu_count() or 1, 1 + text_bytes // TEXT_BYTES_PER_WORKER)


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], num_workers: int
) -> Iterator[Result]:
    """The results in order, made in so many processes; a few items are in memory at a time.

    Raises:
      MachineError: a worker was killed, or did not start.
    """
    if num_workers == 1:
        yield from map(function, items)
        return
    try:
        with _started_pool(function, num_workers) as pool:
            pending: deque[Future] = deque()
            for item in items:
                pending.append(pool.submit(_run_in_worker, item))
                if len(pending) > 2 * num_workers:  # bounds what waits in memory
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
    except BrokenProcessPool:
        raise MachineError(
            "a worker was killed, probably for want of memory: pass fewer --num_workers; the same "
            "command continues."
        ) from None


@contextlib.contextmanager
def _started_pool(function: Callable, num_workers: int) -> Iterator[ProcessPoolExecutor]:
    """Workers that have all been started before any gets work, and know their function.

    They read it from a file: who starts a process waits until it has read what it is handed, for
    ever if it dies before and that is more than a pipe holds.
    """
    context = multiprocessing.get_context("spawn")  # fork is unsafe beside TensorFlow's threads
    with tempfile.NamedTemporaryFile() as file:
        pickle.dump(function, file)
        file.flush()
        with ProcessPoolExecutor(num_workers, context, _start_worker, (file.name,)) as pool:
            try:
                for started in [pool.submit(_do_nothing) for _ in range(num_workers)]:
                    started.result()
            except BrokenProcessPool:
                raise MachineError(
                    "a worker ended while it started: for want of memory (pass fewer "
                    "--num_workers), or because a script builds outside of "
                    '`if __name__ == "__main__":`, which each worker then runs again.'
                ) from None
            yield pool


_function_of_worker: list[Callable] = []


def _start_worker(path: str) -> None:
    exit_with_parent()
    with open(path, "rb") as file:
        _function_of_worker.append(pickle.load(file))


def _do_nothing() -> None:
    """What a worker can do when it has started."""


def exit_with_parent() -> None:
    """Ends this worker when the process that started it is killed: it would wait for ever."""
    threading.Thread(target=_exit_after_parent, daemon=True).start()


def _exit_after_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _run_in_worker(item: Any) -> Any:
    return _function_of_worker[0](item)
