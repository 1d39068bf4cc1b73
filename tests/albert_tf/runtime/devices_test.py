"""Tests of the strategy for each device name, and of the one-line error for a missing device."""

import json
import os
import socket
import subprocess
import sys
import threading

import pytest
import tensorflow as tf
import tf_keras

from albert_tf.runtime import devices
from albert_tf.runtime.errors import InputError


def mistake(*args) -> str:
    with pytest.raises(InputError) as error:
        devices.strategy(*args)
    return str(error.value)


def test_cpu_and_auto():
    for device in ("cpu", "auto"):
        strategy = devices.strategy(device)
        expected = len(tf.config.list_logical_devices("CPU"))
        assert strategy.num_replicas_in_sync == expected or tf.config.list_logical_devices("GPU")


def test_several_of_a_kind_are_mirrored(monkeypatch):
    made = {}
    monkeypatch.setattr(
        tf.distribute,
        "MirroredStrategy",
        lambda names, cross_device_ops: made.update(names=names, reduction=cross_device_ops),
    )
    kinds = {"CPU": 2, "GPU": 2}
    monkeypatch.setattr(
        tf.config,
        "list_logical_devices",
        lambda kind: [
            tf.config.LogicalDevice(f"/device:{kind}:{i}", kind) for i in range(kinds[kind])
        ],
    )
    devices.strategy("cpu")
    assert made["names"] == ["/device:CPU:0", "/device:CPU:1"]
    assert isinstance(made["reduction"], tf.distribute.ReductionToOneDevice)
    for device in ("auto", "gpu"):
        devices.strategy(device)
        assert made == {"names": ["/device:GPU:0", "/device:GPU:1"], "reduction": None}


def test_unknown_device():
    message = mistake("npu")
    assert "auto, cpu, gpu, tpu, multi_worker" in message
    assert "'npu'" in message


def test_no_gpu(monkeypatch):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [])
    assert "--device=gpu" in mistake("gpu")


def test_tpu_without_the_device():
    assert "--tpu=mine requires --device=tpu. Received: --device=cpu" in mistake("cpu", "mine")


TF_CONFIGS = [
    *("", "{", "[]", "3", '{"cluster": {}}', '{"cluster": {}, "task": {}}', '["cluster", "task"]'),
    '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}}',
    '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
    '{"cluster": ["a:1"], "task": {"type": "worker", "index": 0}}',
    '{"cluster": {"worker": ["localhost"]}, "task": {"type": "worker", "index": 0}}',
    '{"cluster": {"worker": ["http://a:1"]}, "task": {"type": "worker", "index": 0}}',
    '{"cluster": {"evaluator": ["a:1"]}, "task": {"type": "evaluator", "index": 0}}',
    '{"cluster": {"worker": ["a:1"], "ps": ["a:2"]}, "task": {"type": "worker", "index": 0}}',
]


@pytest.mark.parametrize("value", [None, *TF_CONFIGS])
def test_multi_worker_needs_tf_config(monkeypatch, value):
    if value is None:
        monkeypatch.delenv("TF_CONFIG", raising=False)
    else:
        monkeypatch.setenv("TF_CONFIG", value)
    message = mistake("multi_worker")
    assert "TF_CONFIG" in message
    assert repr(value) in message


def test_multi_worker_with_tf_config(monkeypatch):
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", lambda: "strategy")
    addresses = ["localhost:1", "[::1]:2", "10.0.0.1:3"]
    task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(task))
    assert devices.strategy("multi_worker") == "strategy"


@pytest.mark.parametrize(
    ("workers", "kind", "index", "chief"),
    [
        ({"worker": ["a:1", "b:1"]}, "worker", 0, True),
        ({"worker": ["a:1", "b:1"]}, "worker", 1, False),
        ({"chief": ["c:1"], "worker": ["a:1"]}, "chief", 0, True),
        ({"chief": ["c:1"], "worker": ["a:1"]}, "worker", 0, False),
    ],
)
def test_one_of_several_workers_is_the_chief(monkeypatch, workers, kind, index, chief):
    class Strategy:
        cluster_resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(workers), task_type=kind, task_id=index
        )

    assert devices.is_chief(Strategy())  # not of several workers
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", Strategy)
    assert devices.is_chief(Strategy()) == chief


def test_a_process_alone_is_the_chief():
    assert devices.is_chief(devices.strategy("cpu"))
    assert devices.is_chief(tf.distribute.get_strategy())


@pytest.fixture
def silent_port():
    """A port that nobody answers: bound, and closed again."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def test_no_tpu_there_is_told_soon(silent_port):
    assert mistake("tpu", None).startswith("--device=tpu needs --tpu")
    for name in (
        "local",
        "no-such-tpu",
        f"grpc://127.0.0.1:{silent_port}",
        "grpc://nonsense",
    ):
        message = mistake("tpu", name, devices.TpuTimeouts(reach=2.0))  # else it takes minutes
        assert message.startswith(f"--tpu={name}: no TPU could be reached there")
    assert socket.getdefaulttimeout() is None


class FakeResolver:
    def __init__(self, tpu):
        self.tpu = tpu

    def master(self):
        return ""


def test_the_order_of_a_tpu_s_beginning(monkeypatch):
    calls = []
    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", FakeResolver)
    monkeypatch.setattr(
        tf.config, "experimental_connect_to_cluster", lambda r: calls.append(("connect", r.tpu))
    )
    monkeypatch.setattr(
        tf.tpu.experimental, "initialize_tpu_system", lambda r: calls.append(("initialize", r.tpu))
    )
    monkeypatch.setattr(tf.distribute, "TPUStrategy", lambda r: ("strategy", r.tpu))
    assert devices.strategy("tpu", "mine") == ("strategy", "mine")
    assert calls == [("connect", "mine"), ("initialize", "mine")]


# As a command does it; the bound is shorter.
PROGRAM = """
import dataclasses, sys
from albert_tf.runtime import commands
from albert_tf.runtime import devices

@dataclasses.dataclass(frozen=True)
class Options:
    tpu: str = commands.option("address")

timeouts = devices.TpuTimeouts(connect=1.0)
commands.run(lambda options: devices.strategy("tpu", options.tpu, timeouts), Options, "")
"""


@pytest.mark.slow
def test_a_tpu_that_takes_the_call_and_says_nothing_ends_the_process():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        address = f"grpc://127.0.0.1:{server.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, f"--tpu={address}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 2, done.stderr
    assert f"--tpu={address}: no TPU could be reached there: no answer within 1 s" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_tpu_that_never_gets_ready_is_left(monkeypatch):
    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", FakeResolver)
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", lambda r: None)
    ready = threading.Event()
    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", lambda r: ready.wait())
    assert "no answer within 0.1 s" in mistake("tpu", "mine", devices.TpuTimeouts(initialize=0.1))
    ready.set()


def test_a_silent_address_is_left_before_tensorflow_waits(monkeypatch, silent_port):
    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", FakeResolver)
    monkeypatch.setattr(FakeResolver, "master", lambda self: f"grpc://127.0.0.1:{silent_port}")
    monkeypatch.setattr(
        tf.config, "experimental_connect_to_cluster", lambda r: pytest.fail("it would wait")
    )
    assert "refused" in mistake("tpu", "mine")


def test_precision_of_a_device():
    assert devices.resolve_precision("float32", "tpu") == "float32"
    assert devices.resolve_precision("auto", "tpu") == "mixed_bfloat16"
    for flags, expected in (
        ({"avx512f"}, "float32"),
        ({"avx512f", "avx512_bf16"}, "mixed_bfloat16"),
        ({"amx_bf16"}, "mixed_bfloat16"),
        (set(), "float32"),
    ):
        assert devices.resolve_precision("auto", "cpu", flags) == expected


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((7, 5), "float32"),
        ((8, 0), "mixed_bfloat16"),
        ((9, 0), "mixed_bfloat16"),
    ],
)
def test_precision_of_gpus(monkeypatch, capability, expected):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["a gpu"])
    monkeypatch.setattr(
        tf.config.experimental, "get_device_details", lambda gpu: {"compute_capability": capability}
    )
    assert devices.resolve_precision("auto", "gpu") == expected


def test_a_policy_ends_with_its_block():
    with devices.precision_policy("mixed_bfloat16"):
        assert tf_keras.layers.Dense(1).compute_dtype == "bfloat16"
    assert tf_keras.layers.Dense(1).compute_dtype == "float32"


THREADS = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))} if sys.argv[1] == "one" else set(range(99)))
from albert_tf.runtime import devices
from albert_tf.runtime.cores import num_cores
import tensorflow as tf
before = devices.num_parallel_parts(tf.distribute.get_strategy())
devices.divide_cores(sys.argv[2], num_cores())
strategy = devices.strategy("cpu")
print(before, devices.num_parallel_parts(strategy), len(os.sched_getaffinity(0)))
tf.constant(1)
devices.divide_cores("cpu", 99)  # too late: changes nothing
print(devices.num_parallel_parts(strategy))
"""


@pytest.mark.slow  # it imports TensorFlow once more
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no such call here")
@pytest.mark.parametrize(("allowed", "device"), [("all", "auto"), ("one", "cpu"), ("all", "tpu")])
def test_the_cores_of_this_process_are_divided_between_parts(allowed, device):
    process = subprocess.run(
        [sys.executable, "-c", THREADS, allowed, device], capture_output=True, text=True, check=True
    )
    before, parts, affinity, after = map(int, process.stdout.split())
    assert before == 1
    assert parts == after == (1 if device == "tpu" else affinity)


@pytest.mark.parametrize(("cores", "parts", "threads"), [(2, 2, 1), (8, 2, 4), (3, 2, 1)])
def test_a_part_has_its_share_of_the_cores(monkeypatch, cores, parts, threads):
    told = {}
    for name in ("intra", "inter"):
        setter = f"set_{name}_op_parallelism_threads"
        monkeypatch.setattr(
            tf.config.threading, setter, lambda n, name=name: told.update({name: n})
        )
    devices.divide_cores("cpu", 1, cores)
    assert not told
    devices.divide_cores("cpu", parts, cores)
    assert told == {"intra": threads, "inter": cores}
