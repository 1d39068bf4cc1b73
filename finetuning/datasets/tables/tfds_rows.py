"""Rows of datasets that TFDS has prepared."""

from typing import Any

from albert_tf.runtime import extras
from albert_tf.runtime.errors import InputNotFoundError
from data.corpora.tfds_texts import tfds_builder


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
