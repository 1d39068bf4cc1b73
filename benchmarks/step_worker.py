"""Run one system of `benchmarks.step_time` in its own process.

The argument is a JSON object: system, precision, jit, threads, and the workload's model
(its non-default keys), batch_size, seq_length, predictions and batch. The output is JSON lines: the
first step; another step for each line of the input; at the end, the peak memory. The worker runs as
a script, with the checkout to measure on PYTHONPATH.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def serve(request: dict[str, Any], answer: Callable[[dict], None]) -> None:
    """Build the system, then run a step for each line of the input."""
    from albert_tf.models.config import AlbertConfig
    from benchmarks.workloads import Workload

    sizes = [request[name] for name in ("batch_size", "seq_length", "predictions")]
    # An older version may not support batches in files.
    batch = [request["batch"]] if request["batch"] else []
    workload = Workload(AlbertConfig.from_dict(request["model"]), *sizes, *batch)
    try:
        build = _builder(request["system"], request["threads"])
    except ImportError as error:
        answer({"absent": str(error)})
        return
    cpu, wall = time.process_time(), time.perf_counter()
    step = build(workload, request["precision"], request["jit"])
    result = step()
    answer({"result": float(result), **_since(cpu, wall)})
    for _ in sys.stdin:
        cpu, wall = time.process_time(), time.perf_counter()
        result = step()
        answer({"result": float(result), **_since(cpu, wall)})
    answer({"peak_rss_mb": peak_rss_mb()})


def _builder(system: str, threads: int) -> Callable:
    """Return the system's builder, after limiting the threads of its library."""
    os.environ["OMP_NUM_THREADS"] = str(threads)  # torch reads it on import
    if system == "limit":
        from benchmarks import matrix_limit as module

        build = module.limit
    else:
        from benchmarks.systems import SYSTEMS

        name, builder = SYSTEMS[system]
        module = importlib.import_module(f"benchmarks.systems.{name}")
        build = getattr(module, builder)
    if "tensorflow" in sys.modules:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    return build


def _since(cpu: float, wall: float) -> dict[str, float]:
    return {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}


def peak_rss_mb() -> float | None:
    """Return this process's peak resident memory; None if the system does not report it."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            (line,) = [line for line in file if line.startswith("VmHWM")]
    except OSError:
        return None
    return round(int(line.split()[1]) / 1024, 1)


if __name__ == "__main__":
    # Keep what libraries print out of the answers.
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        serve(json.loads(sys.argv[1]), lambda line: print(json.dumps(line), file=out, flush=True))
