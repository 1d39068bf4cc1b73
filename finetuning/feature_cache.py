"""Features that are made once: of the same examples, vocabulary and settings the same file."""

import dataclasses
import functools
import glob
import hashlib
import os
import pickle
import tempfile
from collections.abc import Sequence
from typing import Any

import albert_tf
from albert_tf import outputs, settings
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds import KINDS
from albert_tf.tokenization import Tokenizer


def features_of(
    examples: Sequence[Any], tokenizer: Tokenizer, task: Any, folder: str | None
) -> Features:
    """The features of the examples, read from `folder` if they are there, else left there."""
    featurize = KINDS[task.kind].featurize
    if folder is None:
        return featurize(examples, tokenizer, task)
    path = os.path.join(folder, f"{_key(examples, tokenizer, task)}.features")
    if os.path.isfile(path):
        with open(path, "rb") as file:
            print(f"features from {path}")
            return pickle.load(file)
    features = featurize(examples, tokenizer, task)
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as own:  # other processes may be doing the same
        mine = os.path.join(own, "features")
        with outputs.new_file(mine) as partial, open(partial, "wb") as file:
            pickle.dump(features, file, protocol=5)
        os.replace(mine, path)
    return features


def _key(examples: Sequence[Any], tokenizer: Tokenizer, task: Any) -> str:
    digest = hashlib.sha256(repr((_code(), tokenizer.fingerprint)).encode())
    digest.update(repr(sorted(settings.to_dict(task).items())).encode())
    for example in examples:
        digest.update(repr(dataclasses.astuple(example)).encode())
    return digest.hexdigest()[:32]


@functools.cache
def _code() -> str:
    """Changes with the program that makes features: tokenization and tasks."""
    digest = hashlib.sha256()
    package = os.path.dirname(albert_tf.__file__)
    for path in sorted(
        glob.glob("*.py", root_dir=package) + glob.glob("tasks/*.py", root_dir=package)
    ):
        with open(os.path.join(package, path), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()
