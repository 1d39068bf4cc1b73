"""The texts of parquet and Arrow files, and of datasets that Hugging Face's library has saved."""

import os
from collections.abc import Iterator

from albert_tf.runtime.errors import InputError, InputNotFoundError, listed
from albert_tf.runtime.files import arrow_files
from albert_tf.runtime.files.outputs import read_json

_TEXTS = ("string", "large_string", "dictionary<values=string")  # how their types begin
_SPLITS, _STATE = "dataset_dict.json", "state.json"


def table_texts(path: str, column: str) -> Iterator[str]:
    """Yield the texts of a column, without those that are null.

    Raises:
      InputError: the file has no such column or is damaged, or the column holds no texts.
    """
    require_texts(path, column)
    yield from filter(None, arrow_files.values(path, column, "--corpus"))


def require_texts(path: str, column: str) -> None:
    """Check that a file can be opened and that its column holds texts.

    Raises:
      InputError: see `table_texts`.
    """
    types = arrow_files.types_of(path, "--corpus")
    if not types.get(column, "").startswith(_TEXTS):
        columns = f"`{column}` of type {types[column]}" if column in types else listed([*types])
        raise InputError(
            f"--corpus: {path} must have texts in the column `{column}`. Received: {columns}. Pass "
            "the name of the column with texts as --text_column."
        )


def saved_files(folder: str) -> list[str]:
    """Return the files of a dataset saved with `save_to_disk`, in their order.

    Of several splits, `train` is read, or else the first one.

    Raises:
      InputNotFoundError: there is no such dataset, or one of its files is missing.
    """
    splits = os.path.join(folder, _SPLITS)
    if os.path.isfile(splits):
        names = read_json(splits).get("splits")
        if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
            raise InputError(f"{splits!r} must list its splits. Save the dataset again.")
        folder = os.path.join(folder, "train" if "train" in names else names[0])
    state = os.path.join(folder, _STATE)
    if not os.path.isfile(state):
        raise InputNotFoundError(
            f"--corpus=datasets: no {_STATE} in {folder!r} (working directory {os.getcwd()}). "
            "Pass a folder that save_to_disk of Hugging Face's datasets has written."
        )
    files = read_json(state).get("_data_files")
    names = [entry.get("filename") for entry in files or () if isinstance(entry, dict)]
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"{state!r} must list its files. Save the dataset again.")
    paths = [os.path.join(folder, os.path.basename(name)) for name in names]
    if missing := [path for path in paths if not os.path.isfile(path)]:
        raise InputNotFoundError(f"--corpus: no file {missing[0]!r}, which {state!r} lists.")
    return paths
