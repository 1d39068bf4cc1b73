"""Training under JAX's PJRT client, compared with TensorFlow's own."""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.training import jax_program as program
from pretraining import train
from pretraining.loop.train_step import TrainStep
from pretraining.pjrt import runtime as pjrt_runtime
from pretraining.pjrt.runtime import PjrtRuntime
from tests.pretraining.loop.stub_step import fingerprint

pytest.importorskip("jax", reason="jax is absent: requirements-dev.txt")

SMALL = (
    "loop.steps=6",
    "loop.steps_per_loop=2",
    "loop.checkpoint_every=2",
    "optimizer.warmup_steps=2",
    "model.max_positions=32",
    "model.num_layers=1",
    "model.hidden_size=32",
    "model.intermediate_size=32",
    "model.hidden_dropout=0.1",
    "model.attention_dropout=0.1",
    "masking.first_rate=0.4",
    "precision=float32",
)
FIGURES = ("loss/mlm", "loss/pair", "accuracy/mlm", "accuracy/pair", "lr", "skipped")


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compile each program once, in this process and in those that tests start."""
    import jax

    folder = str(tmp_path_factory.mktemp("compiled"))
    for key, value in (("dir", folder), ("max_size", -1)):
        jax.config.update(f"jax_compilation_cache_{key}", value)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = folder


def run(records: str, folder: pathlib.Path, runtime: str, *more: str, **options) -> RunDir:
    given = {"device": "cpu", "runtime": runtime, "set": (*SMALL, *more)}
    parts = {name: options.pop(name) for name in ("make_step",) if name in options}
    train.main(train.TrainOptions(records, str(folder), "smoke", **given | options), **parts)
    return RunDir(str(folder))


def weights(of: RunDir) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(of.checkpoints_path)
    names = [name for name in reader.get_variable_to_shape_map() if "ATTRIBUTES" in name]
    return {name: reader.get_tensor(name) for name in names if "save_counter" not in name}


def assert_equal(some: RunDir, others: RunDir) -> None:
    theirs = weights(others)
    for name, value in weights(some).items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


def assert_same_curve(some: RunDir, others: RunDir, tolerance: float = 2e-6) -> None:
    ours, theirs = some.metrics(), others.metrics()
    assert [row["step"] for row in ours] == [row["step"] for row in theirs]
    # A decayed rate is the highest one times a small difference, which float32 rounds.
    rounded = {"lr": tolerance * max(row["lr"] for row in theirs)}
    for a, b in zip(ours, theirs, strict=True):
        for name in FIGURES:
            near = pytest.approx(b[name], rel=tolerance, abs=rounded.get(name, 1e-12))
            assert a[name] == near, (a["step"], name)
        assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-5)


@pytest.fixture(scope="module")
def whole(tiny_records: str, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return run(tiny_records, tmp_path_factory.mktemp("pjrt") / "run", "pjrt")


@pytest.fixture(scope="module")
def tensorflows(tiny_records: str, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return run(tiny_records, tmp_path_factory.mktemp("tensorflow") / "run", "tensorflow")


def test_the_losses_are_tensorflows_with_the_same_dropout_masks(whole, tensorflows):
    assert_same_curve(whole, tensorflows)
    ours, theirs = weights(whole), weights(tensorflows)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_allclose(value, theirs[name], rtol=1e-4, atol=1e-5, err_msg=name)


def cut(folder: pathlib.Path, source: RunDir, step: int) -> pathlib.Path:
    """A copy of a finished run as it was at a step."""
    import shutil

    shutil.copytree(source.path, folder)
    (folder / "result.json").unlink()
    checkpoints = folder / "checkpoints"
    for path in checkpoints.glob("ckpt-*"):
        if int(re.match(r"ckpt-(\d+)", path.name)[1]) > step:
            path.unlink()
    names = [f"ckpt-{step}"]
    tf.compat.v1.train.update_checkpoint_state(str(checkpoints), names[-1], names)
    return folder


def test_a_resumed_run_is_bit_equal(whole: RunDir, tiny_records: str, tmp_path: pathlib.Path):
    resumed = run(tiny_records, cut(tmp_path / "run", whole, 2), "pjrt")
    assert_equal(resumed, whole)
    assert [row["loss/mlm"] for row in resumed.metrics()] == [
        row["loss/mlm"] for row in whole.metrics()
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [("pjrt", "tensorflow"), ("tensorflow", "pjrt")])
def test_a_run_goes_on_in_the_other_runtime(
    first: str,
    second: str,
    whole: RunDir,
    tensorflows: RunDir,
    tiny_records: str,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture,
):
    begun = {"pjrt": whole, "tensorflow": tensorflows}[first]
    mixed = run(tiny_records, cut(tmp_path / "run", begun, 4), second)
    shown = capsys.readouterr().out
    assert f"begun with --runtime={first} and continues with --runtime={second}" in shown
    assert "continuing at step 4 " in shown
    assert_same_curve(mixed, tensorflows)


@pytest.mark.slow
def test_steps_that_are_not_finite_are_skipped_and_then_rolled_back(
    tiny_records: str, tmp_path: pathlib.Path
):
    """Batches 2, 3 and 4 are bad: with more than two in a row, the run goes back to step 2."""
    from data.pipeline.batches import Records
    from pretraining.loop.config import resolve
    from pretraining.loop.recipes import SMOKE
    from tests.pretraining.loop.stub_step import fingerprints

    records = Records.open(tiny_records)
    bad = fingerprints(records, resolve(SMOKE, SMALL, records.manifest), 5)[2:]

    class Broken(TrainStep):
        def gradients(self, batch, counts, replica):
            sums, gradients = super().gradients(batch, counts, replica)
            is_bad = tf.reduce_any(fingerprint(batch) == tf.constant(bad))
            return sums * tf.where(is_bad, float("nan"), 1.0), gradients

    more = "guard.max_consecutive=2"
    runs = [
        run(tiny_records, tmp_path / name, name, more, make_step=Broken)
        for name in ("pjrt", "tensorflow")
    ]
    ours, theirs = ([row["step"] for row in each.skipped()] for each in runs)
    assert ours == theirs == [2, 3, 4]
    assert_same_curve(*runs)


def refused(tmp_path: pathlib.Path, *more: str, **options: str) -> str:
    """The one line of a run without records, which are therefore not looked for."""
    with pytest.raises(InputError) as caught:
        run("no records", tmp_path / "run", "pjrt", *more, **options)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
    return str(caught.value)


def test_bad_options_are_one_line_before_data_is_read(tmp_path: pathlib.Path):
    only = "--tpu is only for --runtime=tensorflow"
    assert refused(tmp_path, device="tpu", tpu="local").startswith(only)
    for_gpu = refused(tmp_path, device="gpu")
    assert for_gpu.startswith("--device=gpu --runtime=pjrt: jax finds no such device: ")
    assert for_gpu.endswith(
        "Run pip install -e '.[pjrt-gpu]' in the checkout, or pass --device=cpu."
    )
    assert refused(tmp_path, device="npu") == (
        "--device must be one of auto, cpu, gpu, tpu, multi_worker. Received: 'npu'."
    )
    assert refused(tmp_path, "loop.accumulation_steps=3") == (
        "`loop.accumulation_steps` must divide the batch of a replica. Received: 3 steps, "
        "16 sequences."
    )


def test_processes_that_cannot_join_are_one_line(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    with socket.socket() as unused:
        unused.bind(("localhost", 0))
        address = f"localhost:{unused.getsockname()[1]}"
    monkeypatch.setattr(pjrt_runtime, "_REACH_SECONDS", 0.0)
    for role, message in (
        ("worker", f"no process answers at {address}, the first of TF_CONFIG"),
        ("ps", "addresses HOST:PORT by type, chief or worker"),
    ):
        cluster = {"chief": [address], role: ["localhost:1"]}
        values = {"cluster": cluster, "task": {"type": role, "index": 0}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(values))
        assert message in refused(tmp_path, device="multi_worker")


def test_a_finished_run_needs_no_device(whole: RunDir, tiny_records: str, capsys):
    run(tiny_records, pathlib.Path(whole.path), "pjrt", device="gpu")
    assert "is already complete" in capsys.readouterr().out


@pytest.mark.parametrize("side", ["writer", "reader"])
def test_a_jaxlib_that_cannot_write_or_read_a_program_is_one_line(
    side: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    from jax.extend.mlir.dialects import stablehlo

    if side == "writer":
        monkeypatch.setattr(stablehlo, "get_minimum_version", lambda: "99.0.0")
    else:
        serialize = program._serialize
        monkeypatch.setattr(program, "_serialize", lambda text: serialize(text)[:-200])
    assert re.fullmatch(
        r"jax [\d.]+ cannot read a program of TensorFlow [\d.]+ \(.+\)\. Run pip install -e "
        r"'\.\[pjrt\]' in the checkout, or train with --runtime=tensorflow\.",
        refused(tmp_path),
    )


def test_a_step_that_does_not_fit_the_device_is_one_line_and_no_run(
    tiny_records: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(PjrtRuntime, "memory", 10**5)
    with pytest.raises(InputError) as caught:
        run(tiny_records, tmp_path / "run", "pjrt")
    assert re.fullmatch(
        r"a step takes (0\.\d\d) GB on each cpu, which has 0\.00 GB: does not fit, "
        r"\1 GB too large\. Choose a smaller `loop\.global_batch_size`, or --set "
        r"loop\.accumulation_steps=PARTS or --set model\.rematerialize=true\.",
        str(caught.value),
    )
    assert not (tmp_path / "run").exists()


def test_a_dry_run_says_that_a_step_does_not_fit(
    tiny_records: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(PjrtRuntime, "memory", 10**5)
    with pytest.raises(InputError, match=r"a step takes 0\.\d\d GB on each cpu"):
        run(tiny_records, tmp_path / "run", "pjrt", dry_run=True)


@pytest.mark.slow
def test_looking_at_the_memory_changes_nothing(
    whole: RunDir, tiny_records: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(PjrtRuntime, "memory", 10**12)
    assert_equal(run(tiny_records, tmp_path / "run", "pjrt"), whole)


def test_without_jax_the_message_names_the_requirements(tmp_path: pathlib.Path):
    command = """
import sys
sys.modules["jax"] = None
from albert_tf.runtime import commands
from pretraining import train
commands.run(train.main, train.TrainOptions, train.__doc__)
"""
    flags = ["--data=none", f"--run_dir={tmp_path / 'run'}", "--runtime=pjrt"]
    done = subprocess.run(
        [sys.executable, "-c", command, *flags], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--runtime=pjrt needs jax" in done.stderr
    assert done.stderr.count("\n") == 1


FOUR = """
import json, sys
import jax
jax.config.update("jax_num_cpu_devices", int(sys.argv[1]))
from pretraining import train
given = json.loads(sys.argv[2])  # whose lists were tuples
given = {name: tuple(each) if isinstance(each, list) else each for name, each in given.items()}
options = train.TrainOptions(**given)
train.main(options)
"""


@pytest.mark.slow
def test_four_devices_equal_one(tiny_records: str, tmp_path: pathlib.Path):
    """Without dropout, whose masks differ between replicas."""
    more = ("model.hidden_dropout=0", "model.attention_dropout=0", "loop.steps=20")
    for count in (1, 4):
        options = {
            "data": tiny_records,
            "run_dir": str(tmp_path / str(count)),
            "experiment": "smoke",
            "device": "cpu",
            "runtime": "pjrt",
            "set": (*SMALL, *more),
        }
        command = [sys.executable, "-c", FOUR, str(count), json.dumps(options)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        assert f"{count} replica(s)" in done.stdout
    assert_same_curve(RunDir(str(tmp_path / "4")), RunDir(str(tmp_path / "1")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "changes"),
    [
        ("smoke", ("loop.steps=100", "loop.steps_per_loop=1")),
        (
            "albert-mini",
            (
                "loop.steps=40",
                "loop.steps_per_loop=1",
                "loop.checkpoint_every=40",
                "optimizer.warmup_steps=10",
                "optimizer.decay_steps=8",
            ),
        ),
    ],
)
def test_long_curves_are_tensorflows(
    experiment: str, changes: tuple[str, ...], tiny_records: str, tmp_path: pathlib.Path
):
    """At each step: with one step a loop, no figure is a mean."""
    runs = []
    for runtime in ("pjrt", "tensorflow"):
        given = {"device": "cpu", "runtime": runtime, "set": (*changes, "precision=float32")}
        folder = str(tmp_path / runtime)
        train.main(train.TrainOptions(tiny_records, folder, experiment, **given))
        runs.append(RunDir(folder))
    assert_same_curve(*runs)


def test_sums_on_a_cpu_are_not_those_of_ynnpack():
    """A product of three terms and a sum along rows: half of it was lost in jax 0.10.2."""
    import jax
    import jax.numpy as jnp

    rows = jnp.stack([jnp.arange(32_769, dtype=jnp.float32)] + 2 * [jnp.zeros(32_769)], axis=1)

    def squares(rows):
        return jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2))(rows)

    options = PjrtRuntime("cpu")._options
    assert float(jax.jit(squares, compiler_options=options)(rows)[-1]) == 32_768.0**2
