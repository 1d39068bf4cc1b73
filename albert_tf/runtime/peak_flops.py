"""The peak FLOPs per second of devices."""

import os
import re
import time

import tensorflow as tf

from albert_tf.runtime.devices import num_parallel_parts, num_workers

# Dense bfloat16 matrix products, in FLOPs per second. The keys are words in the names of GPUs, and
# the generations of TPU chips (cloud.google.com/tpu/docs).
PEAK_FLOPS = {
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "A10": 125e12,
    "v4": 275e12,
    "v5e": 197e12,
    "v5p": 459e12,
    "v6e": 918e12,
}
_PRODUCT = 1024  # rows and columns of the matrices that time a CPU


def peak_of(name: str) -> float | None:
    """Return the peak FLOPs per second of a GPU or a TPU chip by its name; None if unknown."""
    found = (v for k, v in PEAK_FLOPS.items() if re.search(rf"\b{k}\b", name))
    return next(found, None)


def peak_flops(strategy: tf.distribute.Strategy, precision: str) -> float | None:
    """Return the peak FLOPs per second of the devices of all workers; None if unknown.

    GPUs are looked up by name. A TPU is looked up by TPU_ACCELERATOR_TYPE in the environment (v4-8,
    v5litepod-16), because TensorFlow does not report its type. A CPU is timed on a matrix product,
    which takes a fraction of a second.
    """
    if isinstance(strategy, tf.distribute.TPUStrategy):
        of_slice = _tpu_flops(os.environ.get("TPU_ACCELERATOR_TYPE", ""))
        return of_slice if precision == "mixed_bfloat16" else None
    names = [
        str(tf.config.experimental.get_device_details(gpu).get("device_name", ""))
        for gpu in tf.config.list_physical_devices("GPU")
    ]
    if names and not _is_on_cpu(strategy):
        known = [peak_of(name) or 0.0 for name in names]
        is_known = all(known) and precision == "mixed_bfloat16"
        return sum(known) * num_workers(strategy) if is_known else None
    if not _is_on_cpu(strategy):
        return None
    dtype = tf.bfloat16 if precision == "mixed_bfloat16" else tf.float32
    fastest = float("inf")
    with tf.device("/cpu:0"):
        square = tf.cast(tf.random.stateless_uniform([_PRODUCT, _PRODUCT], (1, 2)), dtype)
        for _ in range(5):
            start = time.perf_counter()
            tf.matmul(square, square).numpy()
            fastest = min(fastest, time.perf_counter() - start)
    # A product runs on the cores of one part.
    return 2 * _PRODUCT**3 / fastest * num_parallel_parts(strategy) * num_workers(strategy)


def _tpu_flops(accelerator_type: str) -> float | None:
    """Return the peak of all chips of a slice; None if its type is unknown.

    The number in a type's name counts cores. v4 and v5p have two cores per chip.
    """
    match = re.fullmatch(r"(v\d+)(litepod|e|p|)-(\d+)", accelerator_type)
    if match is None:
        return None
    chip = match[1] + match[2].replace("litepod", "e")
    cores_per_chip = 1 if chip.endswith("e") else 2
    return PEAK_FLOPS[chip] * int(match[3]) / cores_per_chip if chip in PEAK_FLOPS else None


def _is_on_cpu(strategy: tf.distribute.Strategy) -> bool:
    return all("CPU" in device.upper() for device in strategy.extended.worker_devices)
