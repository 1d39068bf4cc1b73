"""Rows of parquet and Arrow files, read in batches; extra `arrow`."""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from albert_tf.runtime import extras
from albert_tf.runtime.errors import InputError, MachineError, listed, reading
from albert_tf.runtime.files.compression import format_of, is_compressed
from albert_tf.runtime.files.paths import require_file

FORMATS = (".parquet", ".arrow")
_BATCH_ROWS = 128
_BUFFER_BYTES = 2**20  # without it, pyarrow reads a column of a row group as a whole
_REASON_CHARACTERS = 200  # of pyarrow's own message
_FIRST_SHARD = re.compile(r"(.*-)00000(-of-(\d{5})\.\w+)")  # as on Hugging Face's Hub
_PARQUET, _ARROW = b"PAR1", b"ARROW1"  # how they begin; Arrow streams, as datasets write, do not


def types_of(path: str, flag: str = "") -> dict[str, str]:
    """Return the columns of a file and their types; the errors are those of `values`."""
    with _opened(path, flag) as (schema, _):
        return {field.name: str(field.type) for field in schema}


def values(path: str, column: str, flag: str = "") -> Iterator[Any]:
    """Yield the values of a column, read in batches, so that memory is bounded.

    Args:
      path: the file.
      column: its name.
      flag: the flag that named the file, for error messages.

    Raises:
      InputNotFoundError: there is no such file.
      InputError: pyarrow is missing, or the file is damaged or compressed, or a text is not UTF-8.
    """
    with _opened(path, flag) as (_, read):
        for batch in read([column]):
            yield from batch.column(0).to_pylist()


def rows(path: str, flag: str = "") -> Iterator[dict[str, Any]]:
    """Yield the rows of a file as objects of JSON, with None for NaN.

    Numbers of classes become their names if Hugging Face's datasets stored these.

    Raises:
      InputNotFoundError: there is no such file.
      InputError: see `values`.
    """
    with _opened(path, flag) as (schema, read):
        names = _class_names(schema)
        for batch in read(None):
            for row in batch.to_pylist():
                yield {key: _value(value, names.get(key)) for key, value in row.items()}


def shards_of(path: str) -> list[str]:
    """Return all shards, if a file is named as the first of several, or else the file.

    Raises:
      InputError: a shard is missing.
    """
    match = _FIRST_SHARD.fullmatch(path)
    if match is None or not os.path.exists(path):
        return [path]
    shards = [f"{match[1]}{number:05d}{match[2]}" for number in range(int(match[3]))]
    if missing := [shard for shard in shards if not os.path.exists(shard)]:
        raise InputError(
            f"{path} is the first of {len(shards)} files. Missing: {listed(missing, 3)}. Put them "
            "beside it."
        )
    return shards


@contextlib.contextmanager
def _opened(path: str, flag: str) -> Iterator[tuple[Any, Any]]:
    """Yield the schema of a file, and a function that yields the batches of some columns."""
    where = f"{flag}: {path}" if flag else path
    if is_compressed(path):
        raise InputError(
            f"{where} must not be packed, because its format has a compression of its own. Unpack "
            "the file."
        )
    require_file(path, flag)
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # another one reserves 1 GiB
    pyarrow = extras.load("pyarrow", "arrow", f"reading {path}")
    try:
        with reading(path), open(path, "rb") as file:
            begin = file.read(len(_ARROW))
            file.seek(0)
            is_parquet = begin.startswith(_PARQUET) or format_of(path) == ".parquet"
            yield _parquet(file) if is_parquet else _arrow(file, begin == _ARROW)
    except (InputError, MachineError):
        raise
    except (pyarrow.ArrowException, OSError, EOFError, UnicodeDecodeError, MemoryError) as error:
        reason = " ".join(str(error).split())[:_REASON_CHARACTERS].rstrip(".")
        reason = reason or "it states a size that cannot be"  # of a MemoryError
        raise InputError(
            f"{where} must be a complete parquet or Arrow file: {reason}. Write or download it "
            "again."
        ) from None


def _parquet(file: Any) -> tuple[Any, Any]:
    import pyarrow.parquet

    table = pyarrow.parquet.ParquetFile(file, buffer_size=_BUFFER_BYTES, pre_buffer=False)
    options: dict[str, Any] = {"batch_size": _BATCH_ROWS, "use_threads": False}
    return table.schema_arrow, lambda columns: table.iter_batches(columns=columns, **options)


def _arrow(file: Any, is_file: bool) -> tuple[Any, Any]:
    import pyarrow.ipc

    options = pyarrow.ipc.IpcReadOptions(use_threads=False)
    if is_file:
        table = pyarrow.ipc.open_file(file, options=options)
        batches = (table.get_batch(i) for i in range(table.num_record_batches))
    else:
        table = pyarrow.ipc.open_stream(file, options=options)
        batches = iter(table)

    def read(columns: Sequence[str] | None) -> Iterator[Any]:
        for batch in batches:
            batch.validate(full=True)  # of a damaged file, pyarrow would read beyond its memory
            for begin in range(0, batch.num_rows, _BATCH_ROWS):
                part = batch.slice(begin, _BATCH_ROWS)
                yield part.select(columns) if columns else part

    return table.schema, read


def _class_names(schema: Any) -> dict[str, list[str]]:
    """Return the names of the classes in each column that has them, but for numbers as names."""
    class_names = {}
    features: Any = {}
    with contextlib.suppress(KeyError, TypeError, ValueError):
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"].items()
    for column, feature in features:
        with contextlib.suppress(AttributeError, IndexError):  # of a later version
            if isinstance(feature, list):
                feature = feature[0]
            feature = feature.get("feature", feature)
            names = feature.get("names") if feature.get("_type") == "ClassLabel" else None
            if names and names != [str(i) for i in range(len(names))]:
                class_names[column] = names
    return class_names


def _value(value: Any, names: Sequence[str] | None) -> Any:
    if isinstance(value, list):
        return [_value(item, names) for item in value]
    if isinstance(value, float) and value != value:
        return None
    if names and isinstance(value, int):  # -1 stands for no class
        return names[value] if 0 <= value < len(names) else None if value < 0 else value
    return value
