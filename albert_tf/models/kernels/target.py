"""The kind of device that code traced now will run on."""

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
    """Return CPU, GPU, TPU or, if traced for it, XLA: one program for any device."""
    return _traced_for or devices.kind()
