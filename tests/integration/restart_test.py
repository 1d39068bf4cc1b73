"""Runs in processes of their own: killed at any point, told to end, spread over two workers.

Each is compared bit by bit with the run that nothing happened to.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.runtime.run_dir import RunDir

FAST = (
    "loop.steps=24",
    "loop.steps_per_loop=2",
    "loop.checkpoint_every=4",
    "seed=3",
    "optimizer.warmup_steps=2",
    "model.max_positions=32",
    "model.num_layers=1",
    "model.hidden_dropout=0.1",
    "model.attention_dropout=0.1",
)

# On two cores two parts of 2,048 positions, side by side and without padding.
PARALLEL = (
    "--set=loop.global_batch_size=128",
    "--set=model.hidden_dropout=0",
    "--set=model.attention_dropout=0",
)

PJRT = ("--runtime=pjrt", "--device=cpu")

# As `python -m pretraining.train`, on so many virtual CPUs; TRAP is run first.
PROGRAM = """
import os
import sys
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
replicas = int(sys.argv.pop(1))
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
from albert_tf.runtime import commands
from pretraining import train
exec(os.environ.get("TRAP", ""))
sys.modules["__main__"].__spec__ = train.__spec__
commands.run(train.main, train.TrainOptions, train.__doc__)
"""

# kill -9 after the first batch of an evaluation, and at any moment of an export.
TRAPS = {
    "evaluation": """
import signal
from pretraining.evaluation.intrinsic import Evaluator
run = Evaluator.run
Evaluator.run = lambda self: run(self, lambda count: os.kill(os.getpid(), signal.SIGKILL))
""",
    "export": """
import random, signal, threading
from pretraining.loop import selection
save, delay = selection.save, random.uniform(0, 2)
def killed_save(*arguments):
    threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
    save(*arguments)
    threading.Event().wait()
selection.save = killed_save
""",
}


def start(records: str, run: pathlib.Path, *more: str, replicas: int = 1, **environment: str):
    flags = [f"--data={records}", f"--run_dir={run}", "--experiment=smoke"]
    flags += [*(f"--set={a}" for a in FAST), *more]  # of a key set twice the last counts
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(replicas), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"JAX_NUM_CPU_DEVICES": str(replicas)} | environment,
    )


def finish(process: subprocess.Popen, status: int = 0) -> str:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == status, output[-3000:]
    return output


def pair_of_workers(records: str, runs: list[pathlib.Path], *more: str) -> list[subprocess.Popen]:
    """Starts two workers on loopback."""
    ports = []
    for _ in runs:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            ports.append(free.getsockname()[1])
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    tasks = [{"cluster": cluster, "task": {"type": "worker", "index": i}} for i in range(len(runs))]
    return [
        start(records, run, *more, "--device=multi_worker", TF_CONFIG=json.dumps(task))
        for run, task in zip(runs, tasks, strict=True)
    ]


def weights(run: pathlib.Path) -> dict[str, np.ndarray]:
    """Everything in the last checkpoint, weights, moments and counters; not how often it saved."""
    reader = tf.train.load_checkpoint(str(run / "checkpoints"))
    names = [name for name in reader.get_variable_to_shape_map() if "ATTRIBUTES" in name]
    return {name: reader.get_tensor(name) for name in names if "save_counter" not in name}


def assert_equal(some: dict[str, np.ndarray], others: dict[str, np.ndarray]) -> None:
    assert some.keys() == others.keys()
    assert [name for name, value in some.items() if not np.array_equal(value, others[name])] == []


def wait_for_rows(run: pathlib.Path, count: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 300
    while len(RunDir(str(run)).metrics()) < count and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("replicas", "more"),
    [
        (1, ()),
        (2, ()),
        (1, ("--set=loop.accumulation_steps=2", "--set=model.num_layers=3")),
        (1, PARALLEL),
        (1, PJRT),
        (2, PJRT),
    ],
)
def test_killed_at_ten_random_points(
    tiny_records: str, tmp_path: pathlib.Path, replicas: int, more: tuple[str, ...]
):
    """With kill -9, ten times while it trains, logs or saves and twice while it starts."""
    more = (*more, "--set=loop.steps=400")  # more than twelve rounds can reach
    shown = finish(start(tiny_records, tmp_path / "whole", *more, replicas=replicas))
    assert f"{replicas} replica(s)" in shown
    if len(os.sched_getaffinity(0)) > 1:
        assert ("parallel parts" in shown) == (more[:-1] == PARALLEL)
    rng, run = random.Random(replicas), tmp_path / "run"
    for number in range(12):
        checkpoints = (run / "checkpoints").glob("ckpt-*.index")
        last = max((int(path.stem.partition("-")[2]) for path in checkpoints), default=0)
        if os.path.isfile(RunDir(str(run)).metrics_path):
            RunDir(str(run)).truncate_metrics(last)  # what comes from now on is this process's
        process = start(tiny_records, run, *more, replicas=replicas)
        if number % 6:  # two to four loops of two steps further than the checkpoint
            wait_for_rows(run, last // 2 + rng.randint(2, 4), process)
        time.sleep(rng.uniform(0, 0.3))
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert last >= 12  # it was in different places
    finish(start(tiny_records, run, *more, replicas=replicas))
    assert_equal(weights(run), weights(tmp_path / "whole"))
    ours, theirs = RunDir(str(run)).metrics(), RunDir(str(tmp_path / "whole")).metrics()
    assert [row["loss/mlm"] for row in ours] == [row["loss/mlm"] for row in theirs]
    assert not list(run.rglob("*_temp"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("runtime", [(), PJRT])
def test_killed_while_evaluating_and_exporting_a_run_on_two_folders(
    tiny_records: str, tmp_path: pathlib.Path, runtime: tuple[str, ...]
):
    second, run, whole = (tmp_path / name for name in ("second", "run", "whole"))
    shutil.copytree(tiny_records, second)
    data, more = (
        f"{tiny_records}:1,{second}:2",
        (
            *runtime,
            f"--heldout={tiny_records}",
            "--set=evaluation.every=4",
            "--set=loop.export=every:4",
            "--set=loop.steps=12",
        ),
    )
    finish(start(data, whole, *more))
    # An evaluation comes before the checkpoint of its step, an export behind it.
    for death in ("evaluation", 3, "evaluation", "export", "export"):
        process = start(data, run, *more, TRAP=TRAPS.get(death, ""))
        if death not in TRAPS:  # after so many rows
            wait_for_rows(run, death, process)
            process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    finish(start(data, run, *more))
    assert_equal(weights(run), weights(whole))
    ours, theirs = RunDir(str(run)).metrics(), RunDir(str(whole)).metrics()
    compared = ("step", "loss/mlm", "heldout/loss/mlm", "heldout/accuracy/pair")
    assert [[row.get(n) for n in compared] for row in ours] == [
        [row.get(n) for n in compared] for row in theirs
    ]
    assert sum("heldout/loss/mlm" in row for row in ours) == 3
    exports = ["4", "8", "12"]
    for folder in (run, whole):
        assert sorted(os.listdir(folder / "export"), key=int) == exports
        assert all((folder / "export" / step / "saved_model.pb").is_file() for step in exports)


@pytest.mark.slow
@pytest.mark.parametrize("runtime", [(), PJRT])
def test_sigterm_exits_with_143_and_the_rest_is_bit_equal(
    tiny_records: str, tmp_path: pathlib.Path, runtime: tuple[str, ...]
):
    finish(start(tiny_records, tmp_path / "whole", *runtime))
    process = start(tiny_records, tmp_path / "run", *runtime)
    wait_for_rows(tmp_path / "run", 3, process)
    process.send_signal(signal.SIGTERM)
    assert "saving after this loop" in finish(process, 143)
    assert "continuing at step" in finish(start(tiny_records, tmp_path / "run", *runtime))
    assert_equal(weights(tmp_path / "run"), weights(tmp_path / "whole"))


@pytest.mark.slow
def test_a_full_disk_leaves_the_checkpoint_before(tiny_records: str, tmp_path: pathlib.Path):
    """No file may become larger than half a checkpoint, from the second one on."""
    run = tmp_path / "run"
    process = start(tiny_records, run)
    wait_for_rows(run, 2, process)
    process.kill()
    process.wait()
    before = weights(run)
    limited = subprocess.run(
        [
            sys.executable,
            "-c",
            "import resource, signal\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (2**18, 2**18))\n" + PROGRAM,
            "1",
            f"--data={tiny_records}",
            f"--run_dir={run}",
            "--experiment=smoke",
            *(f"--set={a}" for a in FAST),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert limited.returncode == 2 and "pretraining.train: error:" in limited.stderr
    assert "Traceback" not in limited.stderr and "could not be written" in limited.stderr
    assert_equal(weights(run), before)
    finish(start(tiny_records, run))


@pytest.mark.slow
@pytest.mark.parametrize("runtime", [(), PJRT[:1]])
def test_two_workers_give_the_curve_of_one_and_one_of_them_exports(
    tiny_records: str, tmp_path: pathlib.Path, runtime: tuple[str, ...]
):
    """On loopback; gradients are added in another order, so losses agree to 1e-4."""
    dropout = ("--set=model.hidden_dropout=0.0", "--set=model.attention_dropout=0.0")
    still = (*runtime, *dropout)
    finish(start(tiny_records, tmp_path / "one", *still, "--device=cpu"))
    folders = [tmp_path / "two"] * 2
    for worker in pair_of_workers(tiny_records, folders, *still, "--set=loop.export=last"):
        finish(worker)
    one, two = (RunDir(str(tmp_path / name)).metrics() for name in ("one", "two"))
    for a, b in zip(one, two, strict=True):
        assert b["loss/mlm"] == pytest.approx(a["loss/mlm"], rel=1e-4)
    assert (tmp_path / "two/export/24/saved_model.pb").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("runtime", [(), PJRT[:1]])
def test_workers_that_would_continue_from_other_steps_stop(
    tiny_records: str, tmp_path: pathlib.Path, runtime: tuple[str, ...]
):
    """One has the run's folder and the other an empty one, as on disks that are not shared."""
    finish(start(tiny_records, tmp_path / "0", *runtime, "--device=cpu", "--set=loop.steps=8"))
    config = json.loads((tmp_path / "0/config.json").read_text())
    config["loop"]["steps"] = 24
    (tmp_path / "0/config.json").write_text(json.dumps(config))
    (tmp_path / "0/result.json").unlink()
    workers = pair_of_workers(tiny_records, [tmp_path / "0", tmp_path / "1"], *runtime)
    for worker in workers:
        output = finish(worker, status=2)
        assert "all workers must start with the same settings, records and checkpoint" in output
