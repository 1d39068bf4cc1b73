"""Commands read damaged files: each gets an answer or one line, never a traceback or an abort.

To see what a command does with one mutant, without the test around it:

    python -m tests.integration.mutation_test manifest 17
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
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

import pytest

MUTANTS = 500  # of each kind
WORKERS = 2
INTACT = 3  # runs of each kind without damage, of which each must be answered
SECONDS = 60  # for one mutant
SPARE_BYTES = 2**30  # that a command may take on top of TensorFlow
LONGEST_LINE = 1500  # characters
ANSWERS = ("answer", "InputError", "MachineError")


def run_mutant(world: str, work: str, name: str, seed: int) -> None:
    """Damage a file and run the command on it in `work`, an empty folder.

    A negative seed leaves the file intact.
    """
    from tests.integration import mutants
    from tests.integration.mutation_kinds import KINDS, Place

    kind, rng = KINDS[name], random.Random(f"{name} {seed}")
    folder, _, file = kind.file.partition("/")
    at = Place(world, os.path.join(work, folder), os.path.join(work, "out"))
    shutil.copytree(os.path.join(world, folder), at.damaged)
    os.mkdir(at.empty)
    path = pathlib.Path(at.damaged, file)
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
    os.environ["TF_NUM_INTRAOP_THREADS"] = "1"  # there is a worker for each core
    import tests.integration.mutation_kinds  # noqa: F401

    pipe.send("ready")
    while True:
        name, seed = pipe.recv()
        memory = pathlib.Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0]
        limit = int(memory) * 1024 + SPARE_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
        pipe.send(outcome_of(world, name, seed))


class Worker:
    """A process that is started again after it has ended or was stopped for taking too long."""

    def __init__(self, world: str) -> None:
        self.world, self.process = world, None

    def ask(self, name: str, seed: int) -> str:
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, theirs = context.Pipe()
            self.process = context.Process(target=serve, args=(self.world, theirs), daemon=True)
            self.process.start()
            theirs.close()
            self.pipe.recv()
        with contextlib.suppress(EOFError, ConnectionError):
            self.pipe.send((name, seed))
            if self.pipe.poll(SECONDS):
                return self.pipe.recv()
        is_late = self.process.is_alive()
        self.stop()
        return f"more than {SECONDS} s" if is_late else "the process ended"

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.join()
        self.process = None


def outcomes(world: str, names: list[str], count: int) -> dict[tuple[str, int], str]:
    """Return the outcome of each (kind, seed)."""
    todo = iter([(name, seed) for name in names for seed in range(-INTACT, count)])
    found: dict[tuple[str, int], str] = {}

    def work(_: Any) -> None:
        worker = Worker(world)
        for mutant in todo:
            found[mutant] = worker.ask(*mutant)
        worker.stop()

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, range(WORKERS)))
    return found


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_damaged_files_get_an_answer_or_one_line(made_once):
    from tests.integration.mutation_kinds import KINDS, make_world

    world = made_once("mutation_world", make_world)
    found = outcomes(str(world), list(KINDS), MUTANTS)
    for name in KINDS:
        counts = Counter(end for (kind, _), end in found.items() if kind == name)
        print(name, {end: counts[end] for end in ANSWERS})
    assert not [
        f"python -m tests.integration.mutation_test {name!r} {seed}: {end}"
        for (name, seed), end in sorted(found.items())
        if end not in (ANSWERS if seed >= 0 else ["answer"])
    ]


def _reproduce(name: str, seed: int) -> None:
    from tests.integration.mutation_kinds import make_world

    with tempfile.TemporaryDirectory() as folder:
        world, work = pathlib.Path(folder, "world"), pathlib.Path(folder, "work")
        make_world(world)
        work.mkdir()
        run_mutant(str(world), str(work), name, seed)


if __name__ == "__main__":
    _reproduce(sys.argv[1], int(sys.argv[2]))
