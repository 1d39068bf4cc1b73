"""A teacher's vectors of the texts of a training part: DIR/train.vectors, beside its file.

The folder holds vectors.npy, float16 or float32 [N, D], in the order of the texts, and texts.json,
by which vectors of other texts are recognized. The vectors stay in their file until features need
them.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from albert_tf.runtime.errors import DAMAGES, InputError
from albert_tf.runtime.files import outputs
from albert_tf.tasks.examples import TextExample

VECTORS, TEXTS = "vectors.npy", "texts.json"
_ROWS = 2**14  # checked at a time


class StoredVector:
    """A row of a file of vectors; `np.asarray` reads it."""

    __slots__ = ("_store", "_row")

    def __init__(self, store: "VectorStore", row: int) -> None:
        self._store, self._row = store, row

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._store.vectors[self._row], dtype)

    def __repr__(self) -> str:
        return f"vector {self._row} of {self._store.fingerprint}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class VectorStore:
    """The vectors in a folder.

    Attributes:
      vectors: [N, D], mapped from the file.
      fingerprint: a name that changes with the texts and the vectors.

    Raises:
      InputNotFoundError: a file is missing.
      InputError: the files do not fit each other, or a vector is not of finite numbers.
    """

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, VECTORS)
        values = outputs.read_json(os.path.join(folder, TEXTS))
        try:
            self.vectors = np.lib.format.open_memmap(self.path, "r")
        except DAMAGES as error:
            raise InputError(
                f"{self.path!r} must be an array of numpy ({error}). Remove {folder!r} "
                "and make the vectors again."
            ) from None
        self.texts = values.get("sha256")
        shape = (values.get("count"), values.get("width"))
        if self.vectors.shape != shape or self.vectors.dtype not in (np.float16, np.float32):
            raise InputError(
                f"{self.path!r} must have the shape {shape} of {TEXTS}, in float16 or float32. "
                f"Received: {self.vectors.shape}, {self.vectors.dtype}. Remove "
                f"{folder!r} and make the vectors again."
            )
        self.fingerprint = f"{str(self.texts)[:16]} {shape} {self._checked_digest()}"

    def _checked_digest(self) -> str:
        """Return 16 hex digits of the vectors' bytes, which must be finite numbers."""
        digest = hashlib.sha256()
        for begin in range(0, len(self.vectors), _ROWS):
            rows = self.vectors[begin : begin + _ROWS]
            digest.update(np.ascontiguousarray(rows))
            is_finite = np.isfinite(rows).all(axis=1)
            if not is_finite.all():
                row = begin + int(np.argmin(is_finite))
                raise InputError(
                    f"{self.path!r}: row {row:,}, counted from 0, must be of finite numbers. "
                    "Correct it, or leave the text out and make the vectors again."
                )
        return digest.hexdigest()[:16]


def with_vectors(examples: Sequence[TextExample], folder: str, path: str) -> list[TextExample]:
    """Return single texts with the vectors in `folder` as labels.

    Raises:
      InputError: the vectors are of other texts, or the examples in `path` are pairs.
    """
    if any(example.second is not None for example in examples):
        raise InputError(
            f"{path} must hold single texts beside a teacher's vectors in {folder!r}. Received: "
            "pairs. Remove the vectors, or write the texts in a column text."
        )
    store = VectorStore(folder)
    if store.texts != digest_of(example.first for example in examples):
        raise InputError(
            f"{folder!r} must hold the vectors of the texts in {path}. Received: those of others, "
            f"{len(store.vectors):,} beside {len(examples):,} texts. Remove {folder!r} and make "
            "the vectors again."
        )
    return [
        TextExample(example.first, None, StoredVector(store, i))
        for i, example in enumerate(examples)
    ]


def digest_of(texts: Iterable[str]) -> str:
    """Return the SHA-256, in hex digits, of texts in their order."""
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()
