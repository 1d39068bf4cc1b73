"""All device-specific code: `tf.distribute` strategies, precisions, peak rates."""

import contextlib
import dataclasses
import functools
import glob
import json
import os
import re
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.runtime import process_end
from albert_tf.runtime.cores import num_cores
from albert_tf.runtime.errors import InputError

DEVICES = ("auto", "cpu", "gpu", "tpu", "multi_worker")
ROLES = ("chief", "worker")  # of TF_CONFIG, in the order of the processes
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):\d{1,5}")  # HOST:PORT
PRECISIONS = ("auto", "float32", "mixed_bfloat16")


@dataclasses.dataclass(frozen=True)
class TpuTimeouts:
    """How many seconds to wait for a TPU.

    Attributes:
      reach: to resolve its name, and again to connect to its port.
      connect: until all workers answer.
      initialize: until it is ready; a large pod takes minutes.
    """

    reach: float = 20.0
    connect: float = 120.0
    initialize: float = 900.0


def make_deterministic() -> None:
    """Make training steps of this process bit-for-bit reproducible on one machine."""
    tf.config.experimental.enable_op_determinism()
    # The arithmetic optimizer merges additions into AddN nodes of three or more inputs, and AddN
    # starts with whichever input's buffer is free at that moment.
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})


def strategy(
    device: str = "auto", tpu: str | None = None, timeouts: TpuTimeouts | None = None
) -> tf.distribute.Strategy:
    """Return the distribution strategy for `device`.

    Args:
      device: `auto` uses the GPUs, or the CPU if there are none. `cpu` and `gpu` use one device, or
        all devices of that kind in a MirroredStrategy. `cpu` hides the GPUs from the process, if
        TensorFlow has not started them yet. `tpu` uses a TPUStrategy. `multi_worker` uses a
        MultiWorkerMirroredStrategy, described by TF_CONFIG.
      tpu: for `tpu` only: a name, a grpc address or `local`.
      timeouts: for `tpu` only; by default `TpuTimeouts()`.

    Raises:
      InputError: the device is unknown or unavailable, `tpu` is missing or does not apply, or
        TF_CONFIG lacks `cluster` or `task`.
    """
    check_device(device)
    if device == "tpu":
        return _tpu(tpu, timeouts or TpuTimeouts())
    if tpu is not None:
        raise InputError(f"--tpu={tpu} requires --device=tpu. Received: --device={device}.")
    if device == "multi_worker":
        check_tf_config(os.environ.get("TF_CONFIG"))
        with process_end.handlers_kept():
            return tf.distribute.MultiWorkerMirroredStrategy()
    if device == "cpu":
        with contextlib.suppress(RuntimeError):  # TensorFlow has already started them
            tf.config.set_visible_devices([], "GPU")
    gpus = tf.config.list_logical_devices("GPU")
    if device == "gpu" and not gpus:
        raise InputError("--device=gpu, but TensorFlow finds no GPU: pass --device=cpu or auto.")
    return _local(gpus if device != "cpu" and gpus else tf.config.list_logical_devices("CPU"))


def check_device(device: str) -> None:
    """Check the value of --device.

    Raises:
      InputError: it is unknown.
    """
    if device not in DEVICES:
        raise InputError(f"--device must be one of {', '.join(DEVICES)}. Received: {device!r}.")


def divide_cores(device: str, parts: int, cores: int | None = None) -> None:
    """Divide the cores between `parts` parts of a batch if `device` resolves to one CPU.

    Each operation then gets as many threads as a part has cores. Call this before TensorFlow
    computes anything; later calls have no effect. `parts` = 1 changes nothing.
    `cores` is by default `num_cores()`.
    """
    cpus = tf.config.list_physical_devices("CPU")
    has_replicas = len(tf.config.get_logical_device_configuration(cpus[0]) or ()) > 1
    has_gpu = device == "auto" and tf.config.list_physical_devices("GPU")
    if parts == 1 or has_replicas or device not in ("auto", "cpu") or has_gpu:
        return
    cores = cores or num_cores()
    with contextlib.suppress(RuntimeError):  # TensorFlow has already started its threads
        tf.config.threading.set_intra_op_parallelism_threads(max(1, cores // parts))
        tf.config.threading.set_inter_op_parallelism_threads(cores)


def num_parallel_parts(strategy: tf.distribute.Strategy) -> int:
    """Return the number of parts that `divide_cores` set up, or 1."""
    intra = tf.config.threading.get_intra_op_parallelism_threads()
    inter = tf.config.threading.get_inter_op_parallelism_threads()
    if not intra or not inter or strategy.num_replicas_in_sync > 1 or has_accelerator():
        return 1
    return max(1, inter // intra)


def resolve_precision(
    precision: str, device: str = "auto", cpu_flags: set[str] | None = None
) -> str:
    """Return `float32` or `mixed_bfloat16`; `auto` becomes the faster one on `device`.

    `auto` becomes mixed_bfloat16 on a TPU, on GPUs of compute capability 8.0 or higher, and on CPUs
    with avx512_bf16 or AMX; otherwise float32. On other CPUs a bfloat16 product takes several times
    longer. `cpu_flags` are by default this CPU's.
    """
    if precision != "auto":
        return precision
    if device == "tpu":
        return "mixed_bfloat16"
    gpus = [] if device == "cpu" else tf.config.list_physical_devices("GPU")
    if gpus:
        details = (tf.config.experimental.get_device_details(gpu) for gpu in gpus)
        fast = all(one.get("compute_capability", (0, 0)) >= (8, 0) for one in details)
    else:
        fast = has_bfloat16_products(cpu_flags)
    return "mixed_bfloat16" if fast else "float32"


@contextlib.contextmanager
def precision_policy(precision: str) -> Iterator[None]:
    """Create the layers of the block with `precision`: float32 or mixed_bfloat16.

    Variables, LayerNorm, softmax and losses are float32 in both, and so are logits, except those of
    the masked LM in training on a CPU.
    """
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy(precision)
    try:
        yield
    finally:
        tf_keras.mixed_precision.set_global_policy(before)


def has_bfloat16_products(cpu_flags: set[str] | None = None) -> bool:
    """Return True if this CPU, or one with `cpu_flags`, can multiply bfloat16 numbers."""
    return bool((_cpu_flags() if cpu_flags is None else cpu_flags) & {"avx512_bf16", "amx_bf16"})


def has_accelerator() -> bool:
    """Return True if TensorFlow finds a GPU or a TPU."""
    return kind() != "CPU"


def kind() -> str:
    """Return the fastest kind of device that TensorFlow finds: CPU, GPU or TPU."""
    types = {device.device_type for device in tf.config.list_logical_devices()}
    return next((name for name in ("TPU", "GPU") if name in types), "CPU")


@functools.lru_cache(maxsize=1)
def _cpu_flags() -> set[str]:
    """Return the CPU's feature flags; empty if the system has no /proc/cpuinfo."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = [line for line in file if line.startswith("flags")]
    except OSError:
        return set()
    return set(lines[0].split()) if lines else set()


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Return True if this process writes the outputs of its cluster.

    In `multi_worker` that is the chief, or worker 0 if TF_CONFIG lists no chief. Otherwise there is
    only one process.
    """
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return True
    resolver = strategy.cluster_resolver
    first = "chief" if "chief" in resolver.cluster_spec().jobs else "worker"
    return (resolver.task_type, resolver.task_id) == (first, 0)


def num_workers(strategy: tf.distribute.Strategy) -> int:
    """Return the number of processes that train together."""
    return strategy.num_replicas_in_sync // len(strategy.extended.worker_devices)


def _local(devices: list) -> tf.distribute.Strategy:
    names = [device.name for device in devices]
    if len(names) == 1:
        return tf.distribute.OneDeviceStrategy(names[0])
    # Virtual CPUs have no collective kernels: reduce on one of them.
    is_cpu = "CPU" in names[0]
    return tf.distribute.MirroredStrategy(
        names, cross_device_ops=tf.distribute.ReductionToOneDevice() if is_cpu else None
    )


def check_tf_config(text: str | None) -> None:
    """Raise an InputError unless the value of TF_CONFIG has a `cluster` and a `task` of it."""
    try:
        cluster, task = (json.loads(text or "{}")[name] for name in ("cluster", "task"))
        addresses = [address for role in cluster.values() for address in role]
        is_valid = task["index"] >= 0 and task["type"] in ROLES and {*cluster} <= {*ROLES}
        is_valid = is_valid and cluster[task["type"]][task["index"]] in addresses
        is_valid = is_valid and all(map(_ADDRESS.fullmatch, addresses))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        is_valid = False
    if not is_valid:
        raise InputError(
            "--device=multi_worker needs TF_CONFIG in the environment: JSON with `cluster`, lists "
            f"of addresses HOST:PORT by type, {' or '.join(ROLES)}, and `task`, this process's "
            f"type and index. Received: {text!r}."
        )


def _tpu(name: str | None, timeouts: TpuTimeouts) -> tf.distribute.Strategy:
    if name is None:
        raise InputError(
            "--device=tpu needs --tpu: the TPU's name, grpc://HOST:PORT or, on a TPU VM, local."
        )
    try:
        resolver = _resolve(name, timeouts.reach)
        # TensorFlow would wait forever for a server that accepts the connection but never answers.
        _run_with_timeout(timeouts.connect, tf.config.experimental_connect_to_cluster, resolver)
        _run_with_timeout(timeouts.initialize, tf.tpu.experimental.initialize_tpu_system, resolver)
    except (ValueError, RuntimeError, OSError, tf.errors.OpError) as error:
        has_chip = glob.glob("/dev/accel*") or glob.glob("/dev/vfio/[0-9]*")
        problem = "this machine has no TPU chip" if name == "local" and not has_chip else error
        raise InputError(
            f"--tpu={name}: no TPU could be reached there: {problem}. Pass the TPU's "
            "name, grpc://HOST:PORT or, on a TPU VM, local."
        ) from None
    return tf.distribute.TPUStrategy(resolver)


def _run_with_timeout(seconds: float, step: Callable[..., Any], *args: object) -> None:
    """Run `step(*args)` in a thread and wait at most `seconds` for it.

    A step that takes longer is abandoned; its thread ends with the process. Exceptions of `step`
    are raised again here.

    Raises:
      TimeoutError: the step took longer.
    """
    errors: list[Exception] = []

    def run() -> None:
        try:
            step(*args)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError(f"no answer within {seconds:g} s")
    if errors:
        raise errors[0]


def _resolve(name: str | None, timeout_s: float) -> tf.distribute.cluster_resolver.ClusterResolver:
    """Return the resolver of a TPU after checking that its port is open."""
    default = socket.getdefaulttimeout()
    socket.setdefaulttimeout(timeout_s)  # resolving a name queries web services
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
        address = urllib.parse.urlsplit(resolver.master())  # "", local or grpc://HOST:PORT
    finally:
        socket.setdefaulttimeout(default)
    if address.scheme == "grpc":
        socket.create_connection((address.hostname, address.port), timeout_s).close()
    return resolver
