"""A cache of features: the same examples, vocabulary and settings lead to the same file.

A file is an .npz archive of plain arrays, named after attributes: reading one cannot run code.
"""

import dataclasses
import functools
import glob
import hashlib
import os
import typing
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

import albert_tf
from albert_tf.runtime import settings
from albert_tf.runtime.errors import DAMAGES, InputError, reading
from albert_tf.runtime.files import outputs
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.task_settings import TaskSettings
from albert_tf.text.tokenizer import Tokenizer


def features_of(
    examples: Sequence[Any], tokenizer: Tokenizer, task: TaskSettings, folder: str | None
) -> Features:
    """Return the features of the examples, read from `folder` or else saved there."""
    kind = KINDS[task.kind]
    if folder is None:
        return kind.featurize(examples, tokenizer, task)
    path = os.path.join(folder, f"{_key(examples, tokenizer, task)}.npz")
    if os.path.isfile(path):
        try:
            features = _read(path, kind.features)
            print(f"features read from {path}")
            return features
        except InputError as error:
            print(f"{error} The features are made again.")
    features = kind.featurize(examples, tokenizer, task)
    with outputs.new_file(path) as partial, open(partial, "wb") as file:
        np.savez(file, **cast(Any, _arrays(features)))
    return features


def _read(path: str, kind: type[Features]) -> Features:
    try:
        with reading(path), np.load(path, allow_pickle=False) as arrays:
            return _restored(kind, dict(arrays))
    except (*DAMAGES, zipfile.BadZipFile) as error:
        raise InputError(
            f"--cache_dir: {path!r} must hold features written by this program ({error})."
        ) from None


def _arrays(value: Any, name: str = "") -> dict[str, np.ndarray]:
    """Return the arrays of a dataclass and of its values: `sequences.ids`, `targets.label`, ..."""
    parts = vars(value) if dataclasses.is_dataclass(value) else value
    if not isinstance(parts, Mapping):
        return {name: np.asarray(value)}
    if dataclasses.is_dataclass(value):  # not values computed from the fields
        parts = {field.name: parts[field.name] for field in dataclasses.fields(value)}
    return {
        key: array
        for child, part in parts.items()
        for key, array in _arrays(part, f"{name}.{child}" if name else child).items()
    }


def _restored(kind: type, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return the dataclass whose arrays `_arrays` returned."""
    values: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(kind).items():
        below = {
            key.removeprefix(f"{name}."): array
            for key, array in arrays.items()
            if key.startswith(f"{name}.")
        }
        if dataclasses.is_dataclass(hint):
            values[name] = _restored(cast(type, hint), below)
        elif typing.get_origin(hint) is Mapping:
            values[name] = below
        elif hint is np.ndarray:
            values[name] = arrays[name]
        else:  # a number or a tuple of numbers
            values[name] = (typing.get_origin(hint) or hint)(arrays[name].tolist())
    return kind(**values)


def _key(examples: Sequence[Any], tokenizer: Tokenizer, task: TaskSettings) -> str:
    digest = hashlib.sha256(repr((_code(), tokenizer.fingerprint)).encode())
    digest.update(repr(sorted(settings.to_dict(task).items())).encode())
    for example in examples:
        digest.update(repr(dataclasses.astuple(example)).encode())
    return digest.hexdigest()[:32]


@functools.cache
def _code() -> str:
    """Return a digest of the source code that makes features: tokenization and tasks."""
    digest = hashlib.sha256()
    package = os.path.dirname(albert_tf.__file__)
    rooms = ("text/*.py", "tasks/**/*.py")
    for path in sorted(
        p for room in rooms for p in glob.glob(room, root_dir=package, recursive=True)
    ):
        with open(os.path.join(package, path), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()
