"""Time full pretraining steps, ours and those of the installed peers, interleaved.

    python -m benchmarks.step_time --shape=base128 --rounds=5

Each system has its own process; they take turns. The output is one JSON line per system. `ms` is
the median of a step: CPU time with one thread, wall-clock time with more. `ratios` are `ms` over
the `ms` of ours, of `before`, of tf-models-official and of the fastest peer. `matrix_limit_gflops`
is the rate of matrix products, measured between the same steps (the better of large squares and of
the model's own shapes). `share_of_limit` is the time that the step's products take at that rate,
padding included, over `ms`. `first_step_s` is the CPU time to build a system and run its first
step, without imports. `peak_rss_mb` is the peak of the process's memory. A peer that is not
installed gets a line with `absent`. --before is the checkout of another version, which is measured
as `before`; six or more rounds add `of_before`, the median of the ratios of ours to it, round by
round, between the ends of its 95 % interval.

The shapes are base128 and large128 (8 x 128), base512 (2 x 512), small128 (H 256, 6 layers; 32 x
128) and laptop64 (32 x 64, the size of the experiment `laptop` with the paper's block, which every
system has). --set changes a key of the model for every system: --set num_layers=24. --data takes
the batch from records, with their padding.
"""

import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from typing import IO, Annotated, Any

import numpy as np

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import settings
from albert_tf.runtime.bounds import POSITIVE, one_of
from albert_tf.runtime.commands import CommandOptions, option, run
from albert_tf.runtime.errors import InputError
from benchmarks.systems import SYSTEMS
from benchmarks.workers import check_checkout, cpu, paired_ratio
from benchmarks.workloads import WORKLOADS, Workload, batch_of_records, step_flops

PRECISIONS = ("float32", "mixed_bfloat16")
OURS, REFERENCE, BEFORE, LIMIT = ("ours", "ours-bert"), "tf-models-official", "before", "limit"
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "step_worker.py")


@dataclasses.dataclass(frozen=True)
class StepTimeOptions(CommandOptions):
    """The command line of `benchmarks.step_time`."""

    shape: Annotated[str, one_of(*WORKLOADS)] = option(f"one of {', '.join(WORKLOADS)}", "base128")
    systems: str = option("systems, comma-separated", ",".join(SYSTEMS))
    precision: Annotated[str, one_of(*PRECISIONS)] = option(
        f"one of {', '.join(PRECISIONS)}", "float32"
    )
    jit: bool = option("compile our whole step with XLA", False)
    threads: Annotated[int, POSITIVE] = option("cores that each system may use", 1)
    rounds: Annotated[int, POSITIVE] = option(
        "measured steps per system, after two warm-up steps", 5
    )
    before: str | None = option("checkout of another version, measured as well", None, path=True)
    data: str | None = option(
        "records to take the batch from; by default, full random rows", None, path=True
    )
    dry_run: bool = option("check the options and print what would be measured", False)
    set: tuple[str, ...] = option("key=value of the model, such as num_layers=24", ())

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := [name for name in self.names if name not in SYSTEMS]:
            raise InputError(
                f"--systems must be among {', '.join(SYSTEMS)}. Received: {unknown[0]!r}."
            )
        check_checkout(self.before)

    @property
    def names(self) -> list[str]:
        """The names of the systems."""
        return [name for name in self.systems.split(",") if name]

    @property
    def workload(self) -> Workload:
        """The workload of the shape, with the keys of --set."""
        workload = WORKLOADS[self.shape]
        model = settings.override(workload.model, self.set)
        return dataclasses.replace(workload, model=model)


def step_time(options: StepTimeOptions) -> None:
    """Measure and print the lines."""
    if options.dry_run:
        print(json.dumps({"systems": options.names} | settings.to_dict(options.workload)))
        return
    for line in measure(options):
        print(json.dumps(line), flush=True)


def measure(options: StepTimeOptions) -> list[dict]:
    """Return the lines of the installed systems, then those of the absent ones."""
    workload, share = options.workload, 1.0
    with contextlib.ExitStack() as stack:
        if options.data:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            workload = dataclasses.replace(workload, batch=os.path.join(folder, "batch.npz"))
            batch = batch_of_records(workload, options.data)
            np.savez(workload.batch or "", **batch)  # type: ignore[arg-type]
            share = float(batch["input_mask"].mean())  # the part that is not padding
        names = [*options.names, *([BEFORE] if options.before else []), LIMIT]
        workers = {name: stack.enter_context(_worker(name, workload, options)) for name in names}
        absent = {n: w.first["absent"] for n, w in workers.items() if "absent" in w.first}
        workers = {name: worker for name, worker in workers.items() if name not in absent}
        limit = workers.pop(LIMIT)
        key = "cpu_s" if options.threads == 1 else "wall_s"
        seconds: dict[str, list[float]] = {name: [] for name in workers}
        rates = []
        for number in range(options.rounds + 1):
            for name, worker in workers.items():
                took = worker.step()[key]
                seconds[name] += [took] if number else []
            rates.append(limit.step()["result"])
        pieces = workload.batch_size * workload.seq_length
        times = {name: statistics.median(values) for name, values in seconds.items()}
        limit_gflops = statistics.median(rates) / 1e9
        common = {"benchmark": "step_time", "shape": options.shape, "set": list(options.set)}
        common |= {key: getattr(options, key) for key in ("precision", "jit", "threads", "rounds")}
        common |= {"cpu": cpu()}
        lines = [
            common
            | {"system": name, "ms": round(1000 * times[name], 3)}
            | _against_limit(name, workload, times[name], limit_gflops)
            | {"real_pieces_per_s": round(share * pieces / times[name])}
            | {"ratios": _ratios(times, times[name])}
            | (paired_ratio(seconds[name], seconds[BEFORE]) if _is_ours(name, seconds) else {})
            | {"first_step_s": round(worker.first["cpu_s"], 2)}
            | {"first_loss": round(worker.first["result"], 3)}
            | worker.end()
            for name, worker in workers.items()
        ]
    return lines + [common | {"system": name, "absent": why} for name, why in absent.items()]


class _Worker:
    """A process of `benchmarks.step_worker` after its first step, whose line is `first`."""

    def __init__(self, process: subprocess.Popen) -> None:
        assert process.stdin and process.stdout
        self._input: IO[str] = process.stdin
        self._output: IO[str] = process.stdout
        self.first = self._read()

    def step(self) -> dict[str, float]:
        """Run one more step and return its `result`, `cpu_s` and `wall_s`."""
        self._input.write("\n")
        self._input.flush()
        return self._read()

    def end(self) -> dict[str, float]:
        """End the process and return its `peak_rss_mb`."""
        self._input.close()
        return self._read()

    def _read(self) -> dict[str, Any]:
        if not (line := self._output.readline()):
            raise ChildProcessError("a worker ended; see its messages above")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextlib.contextmanager
def _worker(name: str, workload: Workload, options: StepTimeOptions) -> Iterator[_Worker]:
    default = settings.to_dict(AlbertConfig())  # an older version may lack some keys
    model = {k: v for k, v in settings.to_dict(workload.model).items() if v != default[k]}
    request = settings.to_dict(workload) | {
        "model": model,
        "system": "ours" if name == BEFORE else name,
        **{key: getattr(options, key) for key in ("precision", "jit", "threads")},
    }
    tree = options.before if name == BEFORE and options.before else os.path.dirname(WORKER) + "/.."
    environment = os.environ | {"PYTHONPATH": os.path.abspath(tree), "TF_CPP_MIN_LOG_LEVEL": "2"}
    process = subprocess.Popen(
        [sys.executable, WORKER, json.dumps(request)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield _Worker(process)
    finally:
        process.kill()
        process.wait()


def _against_limit(name: str, workload: Workload, seconds: float, limit_gflops: float) -> dict:
    flops = step_flops(workload.as_bert() if name == "ours-bert" else workload)
    return {
        "gflop": round(flops / 1e9, 3),
        "matrix_limit_gflops": round(limit_gflops, 1),
        "share_of_limit": round(flops / 1e9 / limit_gflops / seconds, 4),
    }


def _is_ours(name: str, systems: Collection[str]) -> bool:
    return name == "ours" and BEFORE in systems


def _ratios(times: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Return `seconds` over those of several systems.

    They are ours, --before, the reference and the fastest peer, as far as they are measured.
    """
    peers = [times[name] for name in times if name not in (*OURS, BEFORE)]
    others = {name: times[name] for name in ("ours", BEFORE, REFERENCE) if name in times}
    others |= {"fastest_peer": min(peers)} if peers else {}
    return {name: round(seconds / other, 4) for name, other in others.items()}


if __name__ == "__main__":
    run(step_time, StepTimeOptions, __doc__)
