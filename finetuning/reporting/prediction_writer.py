"""The output of `finetuning.predict`: JSON lines, or values separated by tabs."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import IO, Any

from finetuning.datasets.task import Prediction

_SPAN = ("start", "end", "label", "score", "text")


class PredictionWriter:
    """Writes predictions in several calls.

    JSON lines have an object per example, which begins with its id if it has one. Tab-separated
    values are those of this object; for token classification, they are a table with a line per
    span.

    Args:
      out: the open file.
      kind: the kind of the task.
      format: jsonl or tsv.
    """

    def __init__(self, out: IO[str], kind: str, format: str) -> None:
        self._out, self._format = out, format
        self._has_spans = format == "tsv" and kind == "token_classifier"
        self._count = 0

    def write(self, predictions: Sequence[Prediction], ids: Sequence[Any]) -> None:
        """Write the predictions of more examples; the id of an example without one is None."""
        if self._has_spans and not self._count:
            name = "id" if any(each is not None for each in ids) else "index"
            self._out.write("\t".join((name, *_SPAN)) + "\n")
        for prediction, name in zip(predictions, ids, strict=True):
            self._out.writelines(f"{line}\n" for line in self._lines(prediction, name))
            self._count += 1
        self._out.flush()

    def _lines(self, prediction: Prediction, name: Any) -> Iterator[str]:
        if self._has_spans:
            first = self._count if name is None else name
            for span in prediction["entities"]:
                yield "\t".join(_cell(value) for value in (first, *(span[key] for key in _SPAN)))
            return
        values = prediction if name is None else {"id": name, **prediction}
        if self._format == "jsonl":
            yield json.dumps(values, ensure_ascii=False)
        else:
            yield "\t".join(map(_cell, values.values()))


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return re.sub(r"[\t\r\n]", " ", text)
