"""Where files are: on this machine, or in a bucket (gs://bucket/records).

Finished records are read from a bucket, as TensorFlow reads it; all else is of this machine.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from albert_tf.runtime.errors import InputError


class Reader(NamedTuple):
    """How files of a place are read; each raises where there is none."""

    open: Callable[[str, str], Any]
    names: Callable[[str], list[str]]
    is_file: Callable[[str], bool]


def is_remote(path: str) -> bool:
    """Whether the path is of a bucket."""
    return "://" in path


def reader_of(path: str) -> Reader:
    """How files under `path` are read; for this machine's, TensorFlow is not imported."""
    if not is_remote(path):
        return Reader(open, os.listdir, os.path.isfile)
    import tensorflow as tf

    return Reader(tf.io.gfile.GFile, tf.io.gfile.listdir, tf.io.gfile.exists)


def require_local(path: str, flag: str) -> None:
    """InputError: `path` is of a bucket."""
    if is_remote(path):
        raise InputError(
            f"{flag} must be on this machine or mounted: only finished records are read from a "
            f"bucket. Received: {path!r}. Copy to or from it: gcloud storage cp -r."
        )
