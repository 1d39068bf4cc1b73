"""The peaks of devices, by their names and types; a CPU is timed."""

import pytest
import tensorflow as tf

from albert_tf.runtime import devices
from albert_tf.runtime.peak_flops import peak_flops, peak_of


@pytest.mark.parametrize(
    ("accelerator_type", "expected"),
    [
        ("v4-8", 4 * 275e12),
        ("v5p-8", 4 * 459e12),  # two cores a chip
        ("v5litepod-16", 16 * 197e12),
        ("v5e-4", 4 * 197e12),
        ("v6e-8", 8 * 918e12),
        ("v3-8", None),
        ("v9-8", None),
        ("v5litepod", None),
        ("", None),
    ],
)
def test_the_type_of_a_tpu_tells_its_abilities(monkeypatch, accelerator_type, expected):
    class Strategy:
        pass

    monkeypatch.setattr(tf.distribute, "TPUStrategy", Strategy)
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", accelerator_type)
    assert peak_flops(Strategy(), "mixed_bfloat16") == expected
    assert peak_flops(Strategy(), "float32") is None
    monkeypatch.delenv("TPU_ACCELERATOR_TYPE")
    assert peak_flops(Strategy(), "mixed_bfloat16") is None


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A10", 125),
        ("NVIDIA A10G", None),
        ("NVIDIA RTX A1000 Laptop GPU", None),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("TPU v5e", 197),
    ],
)
def test_a_device_is_known_by_a_word_of_its_name(name, tflops):
    assert peak_of(name) == (tflops and tflops * 1e12)


def test_the_peak_of_a_cpu_is_that_of_all_parts(monkeypatch):
    strategy = devices.strategy("cpu")
    alone = peak_flops(strategy, "float32")
    for name, threads in (("intra", 1), ("inter", 1000)):
        getter = f"get_{name}_op_parallelism_threads"
        monkeypatch.setattr(tf.config.threading, getter, lambda threads=threads: threads)
    assert peak_flops(strategy, "float32") > 100 * alone  # 1,000 times, but for noise
