"""Commands read damaged files: each gets an answer or one line, never a traceback or an abort.

To see what a command does with one mutant, without the test around it:

    python -m tests.integration.mutation_test 'vocabulary vocab.txt' 17
"""

import contextlib
import io
import multiprocessing
import os
import pathlib
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import NamedTuple

import pytest

from tests.integration import mutants
from tests.integration.mutation_kinds import KINDS, Place
from tests.integration.mutation_world import make_world

MUTANTS = 500  # of each kind
WORKERS = 2
INTACT = 3  # runs of each kind without damage, of which each must be answered
SECONDS = 60  # for one mutant
MINUTES = 20  # for all
SPARE_BYTES = 2**30  # that a command may take on top of TensorFlow
LONGEST_LINE = 1500  # characters
ANSWERS = ("answer", "InputError", "MachineError")


class Outcome(NamedTuple):
    """The end of a command, one of ANSWERS or what is wrong with it, and the time it took."""

    end: str
    cpu_seconds: float = 0.0


def run_mutant(world: str, work: str, name: str, seed: int) -> None:
    """Damage a file and run the command on it in `work`, an empty folder.

    A negative seed leaves the file intact.
    """
    kind, rng = KINDS[name], random.Random(f"{name} {seed}")
    folder, _, pattern = kind.file.partition("/")
    at = Place(world, os.path.join(work, folder), os.path.join(work, "out"))
    shutil.copytree(os.path.join(world, folder), at.damaged)
    os.mkdir(at.empty)
    files = sorted(filter(pathlib.Path.is_file, pathlib.Path(at.damaged).glob(pattern)))
    path = rng.choice(files)
    if seed >= 0:
        change = kind.change if rng.random() < 0.6 else mutants.any_bytes
        path.write_bytes(change(path.read_bytes(), rng))
    kind.commands[seed % len(kind.commands)](at)


def outcome_of(world: str, name: str, seed: int) -> str:
    """Return the kind of the command's end: one of ANSWERS, or what is wrong with it."""
    from albert_tf.runtime.commands import one_line
    from albert_tf.runtime.errors import InputError, MachineError

    end = "answer"
    with tempfile.TemporaryDirectory() as work:
        try:
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                run_mutant(world, work, name, seed)
        except (InputError, MachineError) as error:
            end = "InputError" if isinstance(error, InputError) else "MachineError"
            if len(line := one_line(error)) > LONGEST_LINE:
                end = f"a line of {len(line)} characters: {line[:80]}"
        except Exception as error:
            at = next(f for f in reversed(traceback.extract_tb(error.__traceback__))
                      if ".venv" not in f.filename and "lib/python" not in f.filename)  # fmt: skip
            end = f"{type(error).__name__} at {at.filename}:{at.lineno}: {str(error)[:80]!r}"
        left = os.listdir(os.path.join(work, "out")) if os.path.isdir(work + "/out") else []
        if any("incomplete" in file for file in left) or (left and end != "answer"):
            end = f"left {left} after: {end}"
    return end


def serve(world: str, pipe: Connection) -> None:
    """Answer requests with outcomes, in a process of its own with limited memory."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # TensorFlow's log
    while True:
        name, seed = pipe.recv()
        memory = pathlib.Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0]
        limit = int(memory) * 1024 + SPARE_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
        begin = time.process_time()
        end = outcome_of(world, name, seed)
        pipe.send(Outcome(end, time.process_time() - begin))


class Worker:
    """A process that is started again after it has ended or was stopped for taking too long."""

    def __init__(self, world: str) -> None:
        self.world, self.process = world, None

    def ask(self, name: str, seed: int) -> Outcome:
        if self.process is None:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([__name__])  # which imports TensorFlow once
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(target=serve, args=(self.world, theirs), daemon=True)
            self.process.start()
            theirs.close()
        with contextlib.suppress(EOFError, ConnectionError):
            self.pipe.send((name, seed))
            if self.pipe.poll(SECONDS):
                return self.pipe.recv()
        is_late = self.process.is_alive()
        self.stop()
        return Outcome(f"more than {SECONDS} s" if is_late else "the process ended")

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.join()
        self.process = None


class Workers:
    """The workers of all kinds, which have `MINUTES` together."""

    def __init__(self, world: str) -> None:
        self.workers = [Worker(world) for _ in range(WORKERS)]
        self.end = time.monotonic() + 60 * MINUTES

    def outcomes(self, name: str, count: int = MUTANTS) -> dict[int, Outcome]:
        """Return the outcome of each seed of a kind."""
        todo, found = iter(range(-INTACT, count)), {}

        def work(worker: Worker) -> None:
            for seed in todo:
                is_late = time.monotonic() > self.end
                late = Outcome(f"not run in the first {MINUTES} minutes")
                found[seed] = late if is_late else worker.ask(name, seed)

        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(work, self.workers))
        return found

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()


@pytest.fixture(scope="module")
def workers(made_once) -> Iterator[Workers]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_NUM_INTRAOP_THREADS", "1")  # there is a worker for each core
        workers = Workers(str(made_once("mutation_world", make_world)))
        yield workers
        workers.stop()


@pytest.mark.slow
@pytest.mark.timeout(60 * MINUTES)
@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_get_an_answer_or_one_line(workers, name):
    found = workers.outcomes(name)
    counts = Counter(outcome.end for outcome in found.values())
    seconds = sum(outcome.cpu_seconds for outcome in found.values())
    print(f"{name}: { {end: counts[end] for end in ANSWERS} }, {seconds:.0f} s")
    assert not [
        f"python -m tests.integration.mutation_test {name!r} {seed}: {outcome.end}"
        for seed, outcome in sorted(found.items())
        if outcome.end not in (ANSWERS if seed >= 0 else ["answer"])
    ]


def _reproduce(name: str, seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world, work = pathlib.Path(folder, "world"), pathlib.Path(folder, "work")
        make_world(world)
        work.mkdir()
        run_mutant(str(world), str(work), name, seed)


if __name__ == "__main__":
    _reproduce(sys.argv[1], int(sys.argv[2]))
