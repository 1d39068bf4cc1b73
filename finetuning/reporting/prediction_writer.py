"""The output of `finetuning.predict`: JSON lines, or values separated by tabs or commas."""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from typing import IO, Any

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files.compression import format_of
from finetuning.datasets.dataset import Prediction
from finetuning.kinds.registry import FINETUNING

FORMATS = ("jsonl", "tsv", "csv")
_LINES = ("", ".json", ".log", ".ndjson", ".txt")  # extensions that JSON lines may have too


def format_of_output(path: str) -> str:
    """Return the format of predictions that the name of a file stands for.

    Raises:
      InputError: it stands for no format or another one.
    """
    extension = format_of(path)
    if extension in _LINES:
        return FORMATS[0]
    if extension[1:] not in FORMATS:
        raise InputError(
            f"--output must end in .{', .'.join(FORMATS)}. Received: {path!r}. Rename it, or pass "
            "--format."
        )
    return extension[1:]


class PredictionWriter:
    """Writes predictions in several calls.

    JSON lines have an object per example, which begins with its id if it has one. Tab-separated
    values are those of this object; for token classification, they are a table with a line per
    span. Values separated by commas are the same with a header, quoted as spreadsheets do.

    Args:
      out: the open file.
      kind: the kind of the task.
      format: one of `FORMATS`.
    """

    def __init__(self, out: IO[str], kind: str, format: str) -> None:
        self._out, self._format = out, format
        self._kind = FINETUNING[kind]
        self._has_spans = format != "jsonl" and bool(self._kind.table_columns)
        self._names: tuple[str, ...] = ()  # of the columns
        self._count = 0

    def write(self, predictions: Sequence[Prediction], ids: Sequence[Any]) -> None:
        """Write the predictions of more examples; the id of an example without one is None.

        Raises:
          InputError: examples have ids, but those of earlier calls have none, and the format is a
            table, whose columns are those of the first call; or a prediction has other values than
            the first one.
        """
        given = [id_ for id_ in ids if id_ is not None]
        if not self._names and predictions:
            names = self._kind.table_columns if self._has_spans else tuple(predictions[0])
            first = ("id",) if given else ("index",) if self._has_spans else ()
            self._names = (*first, *names)
            if self._has_spans or self._format == "csv":
                self._write(self._names)
        if given and "id" not in self._names and self._format != "jsonl":
            raise InputError(
                f"--format={self._format}: an example with an id must be among the first "
                f"{self._count:,}, or the table has no column for ids. Received: the id "
                f"{given[0]!r} after them. Give the first example one too, or pass --format=jsonl."
            )
        for prediction, name in zip(predictions, ids, strict=True):
            if self._format != "jsonl" and not self._has_spans:
                self._require_columns(prediction)
            for row in self._rows(prediction, name):
                self._write(row)
            self._count += 1
        self._out.flush()

    def _require_columns(self, prediction: Prediction) -> None:
        if others := [key for key in prediction if key not in self._names]:
            raise InputError(
                f"--format={self._format}: all predictions must have the values of the first one, "
                f"which name the columns: {', '.join(self._names)}. Received: {others[0]}, after "
                f"{self._count:,} lines. Divide the input, or pass --format=jsonl."
            )

    def _rows(self, prediction: Prediction, name: Any) -> Iterator[Any]:
        if self._has_spans:
            first = self._count if self._names[0] == "index" else "" if name is None else name
            for row in self._kind.rows_of(prediction):
                yield [first, *row]
            return
        values = prediction if name is None else {"id": name, **prediction}
        yield values if self._format == "jsonl" else [values.get(key, "") for key in self._names]

    def _write(self, row: Any) -> None:
        if self._format == "jsonl":
            self._out.write(json.dumps(row, ensure_ascii=False) + "\n")
        elif self._format == "csv":
            csv.writer(self._out, lineterminator="\n").writerow(map(_text, row))
        else:
            self._out.write("\t".join(re.sub(r"[\t\r\n]", " ", _text(v)) for v in row) + "\n")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
