"""Locations of files: this machine, or a bucket (gs://bucket/records).

Only finished records can be in a bucket, where TensorFlow reads them. All other files must be on
this machine.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from albert_tf.runtime.errors import InputError


class Reader(NamedTuple):
    """Functions that read files at a location; `open` and `names` fail on missing paths."""

    open: Callable[[str, str], Any]
    names: Callable[[str], list[str]]
    is_file: Callable[[str], bool]


def is_remote(path: str) -> bool:
    """Return True if the path is in a bucket."""
    return "://" in path


def absolute(path: str) -> str:
    """Return the absolute path; one in a bucket is absolute."""
    return path if is_remote(path) else os.path.abspath(path)


def reader_of(path: str) -> Reader:
    """Return the reader of files under `path`; local paths do not import TensorFlow."""
    if not is_remote(path):
        return Reader(open, os.listdir, os.path.isfile)
    import tensorflow as tf

    return Reader(tf.io.gfile.GFile, tf.io.gfile.listdir, tf.io.gfile.exists)


def require_local(path: str, flag: str) -> None:
    """Check that `path` is on this machine.

    Raises:
      InputError: `path` is in a bucket.
    """
    if is_remote(path):
        raise InputError(
            f"{flag} must be on this machine or mounted: only finished records are read from a "
            f"bucket. Received: {path!r}. Copy the files with gcloud storage cp -r."
        )
