"""The operations that layers ask for: TensorFlow's own, and sets written by hand for a device.

Nobody needs to read the latter to understand the model: each equals the plain set.
"""

import contextlib
from collections.abc import Iterator

from albert_tf.runtime import devices

KERNELS = ("auto", "plain")  # of settings: what `choice` finds fastest, or TensorFlow's own
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


def target_kind() -> str:
    """Return the kind of device that code traced now will run on.

    It is CPU, GPU, TPU or, if traced for it, XLA: one program for any device.
    """
    return _traced_for or devices.kind()
