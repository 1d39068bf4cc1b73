"""Systems that a benchmark asks in turn, each in a process of its own, and the CPU they run on."""

import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from albert_tf.runtime.errors import InputError, InputNotFoundError

CPU_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "amx_bf16")
_PERCENTILES = ((50, 1), (95, 20), (99, 100))  # percentile and the least number of measurements


class System(NamedTuple):
    """A model in a runtime.

    Attributes:
      run: inputs -> the answer, such as the probabilities or the score of each text; it is timed.
      prepare: texts, or [first, second] for each pair -> inputs; it is not timed.
    """

    run: Callable[[Any], Any]
    prepare: Callable[[Sequence[Any]], Any] = lambda texts: texts


class Worker:
    """A system in its own process, which shares our standard error.

    `ready` is its first line: `ready`, or `absent` with the reason if a library is not installed.

    Args:
      name: the name of the system, for messages.
      module: the module to run, whose last step is `answer_requests`.
      arguments: its command line; paths must be absolute.
      tree: the checkout that has the module; by default, the working directory.

    Raises:
      ChildProcessError: the process ended, here or in `request`; its messages are on standard
        error.
    """

    def __init__(
        self, name: str, module: str, arguments: Sequence[object], tree: str | None = None
    ) -> None:
        self._name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
            cwd=tree,
        )
        self.ready = self._read()

    def request(self, texts: Sequence[Any]) -> dict[str, Any]:
        """Send a request and return its answer: `wall_ms`, `cpu_ms` and `values`."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `_read` reports the end of the process
            self._process.stdin.write(json.dumps(texts) + "\n")
            self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            status = self._process.wait()
            raise ChildProcessError(f"The system {self._name} ended with status {status}.")
        return json.loads(line)

    def end(self) -> None:
        """Close the process's input and wait for its end."""
        self._process.communicate()


def check_checkout(before: str | None) -> None:
    """Check the value of --before.

    Raises:
      InputNotFoundError: it is not a checkout of this project.
    """
    if before and not os.path.isdir(os.path.join(before, "benchmarks")):
        raise InputNotFoundError(f"--before={before} is not a checkout of this project.")


def check_cores(cores: int) -> None:
    """Check that this process may use as many cores.

    Raises:
      InputError: it may not.
    """
    if cores > (usable := len(os.sched_getaffinity(0))):
        raise InputError(f"--cores must be at most {usable}, the usable cores. Received: {cores}.")


def answer_requests(load: Callable[[], System], cores: int) -> None:
    """Load a system onto some cores, then answer each line of JSON on standard input.

    This is the other side of `Worker`. Only a missing library is reported as absent; any other
    error ends the process.
    """
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    lines = os.fdopen(os.dup(1), "w")  # all other output goes to standard error
    os.dup2(2, 1)
    try:
        system = load()
    except ImportError as error:
        print(json.dumps({"absent": str(error)}), file=lines, flush=True)
        return
    print(json.dumps({"ready": True}), file=lines, flush=True)
    for line in sys.stdin:
        inputs = system.prepare(json.loads(line))
        wall, cpu = time.perf_counter(), time.process_time()
        values = system.run(inputs)
        answer = {
            "wall_ms": 1000 * (time.perf_counter() - wall),
            "cpu_ms": 1000 * (time.process_time() - cpu),
            "values": values,
        }
        print(json.dumps(answer), file=lines, flush=True)


def percentiles(times_ms: Sequence[float]) -> dict[str, float]:
    """Return `p50_ms`, with 20 or more times `p95_ms`, and with 100 or more `p99_ms`."""
    ordered = sorted(times_ms)
    return {
        f"p{percent}_ms": round(ordered[-(-percent * len(ordered) // 100) - 1], 2)
        for percent, required in _PERCENTILES
        if len(ordered) >= required
    }


def paired_ratio(ours: Sequence[float], others: Sequence[float]) -> dict[str, list[float]]:
    """Return `of_before`: the median of the rounds' ratios between the ends of its 95 % interval.

    The ends are order statistics, so no distribution is assumed; empty for fewer than six rounds.
    """
    ratios = sorted(our / other for our, other in zip(ours, others, strict=True))
    count, tail, rank = len(ratios), 0.0, 0
    while (tail := tail + math.comb(count, rank) / 2**count) <= 0.025:
        rank += 1
    if not rank:
        return {}
    ends = ratios[rank - 1], statistics.median(ratios), ratios[-rank]
    return {"of_before": [round(ratio, 4) for ratio in ends]}


def throughput(count: int, wall_ms: Sequence[float]) -> dict[str, float]:
    """Return `texts_per_s` of requests that had `count` texts together."""
    return {"texts_per_s": round(1000 * count / sum(wall_ms), 1)}


def cpu() -> str:
    """Return the CPU's name and which `CPU_FLAGS` it has; empty if the system reports neither."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = dict(line.split(":", 1) for line in file if ":" in line)
    except OSError:
        return ""
    values = {key.strip(): value.strip() for key, value in lines.items()}
    flags = set(values.get("flags", "").split())
    return " ".join([values.get("model name", ""), *(flag for flag in CPU_FLAGS if flag in flags)])
