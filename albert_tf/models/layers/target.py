"""The kind of device that code traced now will run on: the only switch between code for devices."""

import contextlib
from collections.abc import Iterator

from albert_tf.runtime import devices

_traced_for = ""


@contextlib.contextmanager
def tracing_for(kind: str) -> Iterator[None]:
    """Trace the block for a kind of device, even if this machine has none."""
    global _traced_for
    before, _traced_for = _traced_for, kind
    try:
        yield
    finally:
        _traced_for = before


def kind() -> str:
    """Return CPU, GPU or TPU."""
    return _traced_for or devices.kind()


def is_cpu() -> bool:
    """Return True if code traced now will run on a CPU."""
    return kind() == "CPU"


def is_gpu() -> bool:
    """Return True if code traced now will run on a GPU."""
    return kind() == "GPU"


def is_tpu() -> bool:
    """Return True if code traced now will run on a TPU."""
    return kind() == "TPU"
