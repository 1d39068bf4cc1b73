"""Vectors written to a file in chunks, so that an interrupted call can go on."""

import os
from collections.abc import Callable
from typing import Protocol

import numpy as np

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from albert_tf.training.progress import Progress


class Texts(Protocol):
    """Texts that may lie in a file."""

    def __len__(self) -> int: ...
    def __getitem__(self, row: int, /) -> str: ...


def store_vectors(
    path: str,
    done_path: str,
    texts: Texts,
    embed: Callable[[list[str]], np.ndarray],
    width: int,
    chunk: int,
    flag: str,
) -> None:
    """Write the vectors of texts that an interrupted call has not written yet.

    Args:
      path: the file, an array of NumPy, float16 [N, width].
      done_path: the file with the number of vectors that are complete.
      texts: the N texts, which are read in chunks.
      embed: texts -> vectors [n, width].
      width: the width of the vectors.
      chunk: the texts between two points from which a call can continue.
      flag: the option that names the model, for messages.

    Raises:
      InputError: a vector is not of finite numbers in float16.
    """
    done = 0
    if os.path.isfile(done_path):
        with open(done_path, encoding="ascii") as file:
            done = int(file.read())
        vectors = np.lib.format.open_memmap(path, "r+")
    else:
        vectors = np.lib.format.open_memmap(path, "w+", np.float16, (len(texts), width))
        with open(path, "r+b") as file:  # a disk that is full ends in an error, not in SIGBUS
            os.posix_fallocate(file.fileno(), 0, os.path.getsize(path))
    with Progress("texts", len(texts), done) as progress:
        for begin in range(done, len(texts), chunk):
            end = min(begin + chunk, len(texts))
            batch = [texts[row] for row in range(begin, end)]
            with np.errstate(over="ignore"):  # checked below
                rows: np.ndarray = embed(batch).astype(np.float16)
            is_finite = np.isfinite(rows).all(axis=1)
            if not is_finite.all():
                row = int(np.argmin(is_finite))
                raise InputError(
                    f"{flag}: the vector of text {begin + row:,}, counted from 0, must be of "
                    f"finite numbers in float16. The text: {batch[row][:80]!r}. Leave it out, or "
                    "pass another model."
                )
            vectors[begin:end] = rows
            vectors.flush()
            outputs.write_bytes(done_path, str(end).encode())
            progress.advance(end - begin)
