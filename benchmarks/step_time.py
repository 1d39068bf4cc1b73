"""Times a full pretraining step of ours beside the installed peers, interleaved, in CPU time.

    python -m benchmarks.step_time --shape=base128 --rounds=5

One JSON line per system: `ms` is the median CPU time of a step, `ratios` that over the `ms` of
ours, of tf-models-official and of the fastest peer. `matrix_limit_gflops` is the rate of matrix
products, measured between the same steps (the better of large squares and of the model's own
shapes); `share_of_limit` is the time that the step's products take at that rate, over `ms`.
`first_step_s` is the CPU time of building a system and running its first step, imports excluded.
A peer that is not installed is a line with `absent`. With --memory, `peak_rss_mb` and
`first_step_s` are measured in a process of each system's own.

Shapes: base128 and large128 are 8 x 128, base512 2 x 512, small128 (H 256, 6 layers) 32 x 128.
--set changes a key of the shape's model for every system: --set num_layers=24.
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Annotated, NamedTuple

from albert_tf.runtime import settings
from albert_tf.runtime.bounds import POSITIVE, one_of
from albert_tf.runtime.commands import CommandOptions, option, run
from albert_tf.runtime.errors import InputError
from benchmarks.systems import SYSTEMS, Step, load
from benchmarks.workloads import WORKLOADS, Workload, step_flops

PRECISIONS = ("float32", "mixed_bfloat16")
OURS, REFERENCE = ("ours", "ours-bert"), "tf-models-official"


@dataclasses.dataclass(frozen=True)
class StepTimeOptions(CommandOptions):
    """What is measured, and how often."""

    shape: Annotated[str, one_of(*WORKLOADS)] = option(f"one of {', '.join(WORKLOADS)}", "base128")
    systems: str = option("which, comma-separated", ",".join(SYSTEMS))
    precision: Annotated[str, one_of(*PRECISIONS)] = option(
        f"one of {', '.join(PRECISIONS)}", "float32"
    )
    jit: bool = option("compile our whole step with XLA", False)
    threads: Annotated[int, POSITIVE] = option("threads of TensorFlow and of torch", 1)
    rounds: Annotated[int, POSITIVE] = option(
        "measured steps of each system, after one that is not", 5
    )
    memory: bool = option("measure peak memory and the first step in processes of their own", False)
    dry_run: bool = option("check the options, print what would be measured", False)
    set: tuple[str, ...] = option("", ())

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := [name for name in self.names if name not in SYSTEMS]:
            raise InputError(
                f"--systems must be among {', '.join(SYSTEMS)}. Received: {unknown[0]!r}."
            )

    @property
    def names(self) -> list[str]:
        """The systems' names."""
        return [name for name in self.systems.split(",") if name]

    @property
    def workload(self) -> Workload:
        """The shape, with the keys of --set."""
        workload = WORKLOADS[self.shape]
        return dataclasses.replace(workload, model=settings.override(workload.model, self.set))


def step_time(options: StepTimeOptions) -> None:
    """Measures and prints the lines."""
    if options.dry_run:
        print(json.dumps({"systems": options.names} | settings.to_dict(options.workload)))
        return
    for line in measure(options):
        if options.memory and "absent" not in line:
            own_line = _in_own_process(line["system"], options)
            line |= {key: own_line[key] for key in ("first_step_s", "peak_rss_mb")}
        print(json.dumps(line), flush=True)


def measure(options: StepTimeOptions) -> list[dict]:
    """The lines of the installed systems, then those of the absent ones."""
    _set_threads(options.threads)
    built, absent = _build(options)
    times, limit_gflops = _interleaved({name: b.step for name, b in built.items()}, options)
    common = {"benchmark": "step_time", "shape": options.shape, "set": list(options.set)}
    common |= {key: getattr(options, key) for key in ("precision", "jit", "threads", "rounds")}
    lines = [
        common
        | {"system": name, "ms": round(1000 * times[name], 3)}
        | _against_limit(name, options.workload, times[name], limit_gflops)
        | {"ratios": _ratios(times, times[name])}
        | {"first_step_s": b.first_step_s, "first_loss": b.first_loss, "peak_rss_mb": b.peak_rss_mb}
        for name, b in built.items()
    ]
    return lines + [common | {"system": name, "absent": why} for name, why in absent.items()]


class Built(NamedTuple):
    """A system after its first step; the peak of memory where the process holds it alone."""

    step: Step
    first_step_s: float
    first_loss: float
    peak_rss_mb: float | None


def _build(options: StepTimeOptions) -> tuple[dict[str, Built], dict[str, str]]:
    """The installed systems, and why the others are absent."""
    built, absent = {}, {}
    for name in options.names:
        try:
            build = load(name)
        except ImportError as error:
            if name in OURS:
                raise
            absent[name] = str(error)
            continue
        start = time.process_time()
        step = build(options.workload, options.precision, options.jit)
        loss, seconds = step(), time.process_time() - start
        peak = _peak_rss_mb(step) if options.names == [name] else None
        built[name] = Built(step, round(seconds, 2), round(loss, 3), peak)
    return built, absent


def _interleaved(
    steps: Mapping[str, Step], options: StepTimeOptions
) -> tuple[dict[str, float], float]:
    """Median CPU seconds of each system, and the matrix limit in GFLOP/s."""
    from benchmarks import matrix_limit

    products = matrix_limit.products(options.workload, options.precision)
    runs: dict[str, Callable[[], object]] = dict(steps)
    runs |= {f"limit/{name}": product.run for name, product in products.items()}
    for product in products.values():
        product.run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, call in runs.items():
            start = time.process_time()
            call()
            seconds[name].append(time.process_time() - start)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    rates = [product.flops / medians[f"limit/{name}"] for name, product in products.items()]
    return {name: medians[name] for name in steps}, max(rates) / 1e9


def _against_limit(name: str, workload: Workload, seconds: float, limit_gflops: float) -> dict:
    flops = step_flops(workload.as_bert() if name == "ours-bert" else workload)
    return {
        "gflop": round(flops / 1e9, 3),
        "matrix_limit_gflops": round(limit_gflops, 1),
        "share_of_limit": round(flops / 1e9 / limit_gflops / seconds, 4),
    }


def _ratios(times: Mapping[str, float], seconds: float) -> dict[str, float]:
    """`seconds` over those of ours, of the reference and of the fastest peer."""
    peers = [times[name] for name in times if name not in OURS]
    others = {name: times[name] for name in ("ours", REFERENCE) if name in times}
    others |= {"fastest_peer": min(peers)} if peers else {}
    return {name: round(seconds / other, 4) for name, other in others.items()}


def _in_own_process(name: str, options: StepTimeOptions) -> dict:
    """The line of the same measurement of one system alone."""
    command = [sys.executable, "-m", "benchmarks.step_time", f"--systems={name}", "--rounds=1"]
    command += [f"--{key}={getattr(options, key)}" for key in ("shape", "precision", "threads")]
    command += [f"--jit={options.jit}", *(f"--set={assignment}" for assignment in options.set)]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(process.stdout.splitlines()[-1])


def _set_threads(threads: int) -> None:
    """For TensorFlow and, which reads the environment at its import, torch."""
    import tensorflow as tf

    os.environ["OMP_NUM_THREADS"] = str(threads)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


def _peak_rss_mb(step: Step) -> float | None:
    """This process' peak of resident memory after one more step; None where nothing tells it."""
    step()
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            (line,) = [line for line in file if line.startswith("VmHWM")]
    except OSError:
        return None
    return round(int(line.split()[1]) / 1024, 1)


if __name__ == "__main__":
    run(step_time, StepTimeOptions, __doc__)
