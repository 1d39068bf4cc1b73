"""Datasets that TFDS has prepared."""

import re
from collections.abc import Iterator
from typing import Any

from albert_tf.runtime import extras
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.runtime.files.binary_files import PEEKED_BYTES, is_binary
from data.records import locations

_WIKI40B = re.compile("_START_(?:ARTICLE|SECTION|PARAGRAPH)_|_NEWLINE_")  # its markers


def tfds_builder(name: str, data_dir: str | None, flag: str) -> Any:
    """Return the builder of a dataset that TFDS has prepared; nothing is downloaded.

    Error messages name `flag`.

    Raises:
      InputNotFoundError: no prepared dataset has this name.
      InputError: the name is invalid, or `data_dir` is in a bucket.
    """
    tfds = extras.load("tensorflow_datasets", "tfds", f"{flag} with a dataset of TFDS")
    locations.require_local(data_dir or "", "--data_dir")
    try:  # from files only, without the network or the dataset's own code
        return tfds.core.read_only_builder.builder_from_files(name, data_dir=data_dir)
    except tfds.core.registered.DatasetNotFoundError:
        folder = data_dir or tfds.core.constants.DATA_DIR
        raise InputNotFoundError(
            f"{flag}: no prepared dataset {name} in {folder!r}. Nothing is downloaded: run "
            f"`tfds build {name} --data_dir={folder}` first."
        ) from None
    except ValueError:  # from TFDS's parser of names
        raise InputError(
            f"{flag}: the name must be name, name/config or name/config:1.0.0, of letters, digits "
            f"and _. Received: {name!r}."
        ) from None


def tfds_rows(name: str, data_dir: str | None, split: str) -> tuple[Any, list[dict[str, Any]]]:
    """Return the features and the rows of a dataset prepared by TFDS; nothing is downloaded.

    Raises:
      InputNotFoundError: TFDS has prepared no dataset of this name, or it has no such split.
      InputError: the name is invalid, or `data_dir` is in a bucket.
    """
    builder = tfds_builder(name, data_dir, "--tfds")
    if split not in builder.info.splits:
        raise InputNotFoundError(
            f"--tfds: {name} must have a split {split!r}. Received: {sorted(builder.info.splits)}."
        )
    tfds = extras.load("tensorflow_datasets", "tfds", "--tfds")
    dataset = builder.as_dataset(split=split, shuffle_files=False)
    return builder.info.features, list(tfds.as_numpy(dataset))


def _corpus_builder(name: str, data_dir: str | None) -> Any:
    return tfds_builder(name, data_dir, "--corpus=tfds:NAME")


def _tfds_split(builder: Any) -> Any:
    splits = builder.info.splits
    return splits["train" if "train" in splits else sorted(splits)[0]]


def tfds_files(name: str, data_dir: str | None) -> list[str]:
    """Return the files of the train split (else the first split) of a prepared dataset.

    Raises:
      InputNotFoundError: no prepared dataset has this name.
    """
    return [str(path) for path in _tfds_split(_corpus_builder(name, data_dir)).filepaths]


def tfds_texts(location: str, data_dir: str | None, errors: str) -> Iterator[tuple[str, str]]:
    """Yield the name of a dataset and each text of its train split (else the first split).

    Raises:
      InputNotFoundError: no prepared dataset has this name.
      InputError: it has no text, or text that is not UTF-8 while `errors` is `strict`.
    """
    builder = _corpus_builder(location, data_dir)
    features = builder.info.features
    strings = [
        key
        for key, kind in features.items()
        if type(kind).__name__ in ("Text", "Tensor") and str(kind.np_dtype) == "object"
    ]
    key = "text" if "text" in strings else next(iter(strings), None)
    if key is None:
        raise InputError(
            f"--corpus=tfds:{location} must have a text feature. Received: {list(features)}."
        )
    dataset = builder.as_dataset(split=_tfds_split(builder).name, shuffle_files=False)
    for row in dataset.as_numpy_iterator():
        try:
            text = row[key].decode("utf-8", errors)
        except UnicodeDecodeError as error:
            advice = "" if is_binary(row[key][:PEEKED_BYTES]) else " Pass --errors=replace."
            raise InputError(
                f"--corpus=tfds:{location} must be UTF-8. Received: {error}.{advice}"
            ) from None
        yield builder.info.name, _WIKI40B.sub("\n\n", text)
