"""A parallel map over a stream of items, in order and in bounded memory.

`Executor.map` reads all items before it yields a result, so its memory grows with the text: 150 MB
of text raised the peak to 50 MB, against 15 MB here.
"""

import contextlib
import dataclasses
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from typing import Any, TypeVar

from albert_tf.runtime.cores import num_cores
from albert_tf.runtime.errors import MachineError, writing_temporary

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How a build divides its work.

    Attributes:
      shard_bytes: bytes of text whose records make one shard.
      worker_bytes: bytes of text per process; for less, starting it costs more than it saves.
      batch_characters: characters of text that are cut together.
      batches_per_mark: batches that a rerun may have to repeat, or a 200th of the corpus if that is
        more; by default about 64 MB of text.
    """

    shard_bytes: int = 16 * 2**20
    worker_bytes: int = 2 * 2**20
    batch_characters: int = 2_000_000
    batches_per_mark: int = 32


DEFAULT_SIZES = Sizes()


def useful_workers(
    max_workers: int, text_bytes: int, worker_bytes: int = Sizes.worker_bytes
) -> int:
    """Return the number of processes worth starting for `text_bytes` of text.

    It is at most `max_workers`, where 0 means one per core.
    """
    return min(max_workers or num_cores(), 1 + text_bytes // worker_bytes)


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], num_workers: int
) -> Iterator[Result]:
    """Yield the results of `function` in order, computed in `num_workers` processes.

    Only a few items are in memory at a time.

    Raises:
      MachineError: a worker was killed or did not start, or no temporary file can be written.
    """
    if num_workers == 1:
        yield from map(function, items)
        return
    try:
        with _started_pool(function, num_workers) as pool:
            pending: deque[Future] = deque()
            for item in items:
                pending.append(pool.submit(_run_in_worker, item))
                if len(pending) > 2 * num_workers:  # bounds the memory
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
    except BrokenProcessPool:
        raise MachineError(
            "a worker was killed, probably because memory ran out. Run the command again with "
            "fewer --num_workers; it resumes."
        ) from None


@contextlib.contextmanager
def _started_pool(function: Callable, num_workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool whose workers have all started and loaded the function.

    They read the function from a file. If it were an argument of the process, the parent would wait
    for the worker to read it, and would wait forever if the worker died first and the function were
    larger than a pipe's buffer.
    """
    context = multiprocessing.get_context("spawn")  # fork is unsafe with TensorFlow's threads
    with contextlib.ExitStack() as stack:
        with writing_temporary():
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            with open(path := os.path.join(folder, "function"), "wb") as file:
                pickle.dump(function, file)
        with ProcessPoolExecutor(num_workers, context, _start_worker, (path,)) as pool:
            try:
                with _ignoring_interrupts():
                    starting = [pool.submit(_do_nothing) for _ in range(num_workers)]
                for started in starting:
                    started.result()
            except BrokenProcessPool:
                raise MachineError(
                    "a worker ended while it started. Either memory ran out (pass fewer "
                    "--num_workers), or a script builds outside of "
                    '`if __name__ == "__main__":`, so that each worker runs it again.'
                ) from None
            try:
                yield pool
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


@contextlib.contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Let the processes that the block starts ignore Ctrl-C: their parent ends them."""
    if threading.current_thread() is not threading.main_thread():  # it may not change the handler
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_function_of_worker: list[Callable] = []


def _start_worker(path: str) -> None:
    exit_with_parent()
    with open(path, "rb") as file:
        _function_of_worker.append(pickle.load(file))


def _do_nothing() -> None:
    """Do nothing; the result shows that the worker has started."""


def exit_with_parent() -> None:
    """End this worker if its parent process is killed; otherwise it would wait forever."""
    threading.Thread(target=_exit_after_parent, daemon=True).start()


def _exit_after_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _run_in_worker(item: Any) -> Any:
    return _function_of_worker[0](item)
