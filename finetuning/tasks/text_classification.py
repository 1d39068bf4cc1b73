"""A user's own table: train.tsv and dev.tsv with columns `text` and `label`."""

import os

from albert_tf.errors import InputError, InputNotFoundError
from albert_tf.tasks.classifier import ClassifierTask
from finetuning.task import Examples

COLUMNS = ("text", "label")


class TextClassification:
    """Single texts with any set of labels, found in the training part."""

    def read(self, data_dir: str) -> tuple[ClassifierTask, Examples, Examples]:
        """See `finetuning.task.Task`."""
        train, dev = (_rows(os.path.join(data_dir, name)) for name in ("train.tsv", "dev.tsv"))
        labels = tuple(sorted({label for _, label in train}))
        if len(labels) < 2:
            raise InputError(
                f"{data_dir}/train.tsv must hold at least two labels. Received: {labels}."
            )
        number = {label: i for i, label in enumerate(labels)}
        for row, (_, label) in enumerate(dev, start=2):
            if label not in number:
                raise InputError(
                    f"{data_dir}/dev.tsv:{row}: label {label!r} does not occur in train.tsv, "
                    f"which has {', '.join(labels)}."
                )
        return ClassifierTask(labels), _examples(train, number), _examples(dev, number)


def _examples(rows: list[tuple[str, str]], number: dict[str, int]) -> Examples:
    texts, labels = zip(*rows, strict=True)
    return Examples(texts, None, tuple(number[label] for label in labels))


def _rows(path: str) -> list[tuple[str, str]]:
    if not os.path.isfile(path):
        raise InputNotFoundError(f"--data_dir: no file {path!r} (working folder {os.getcwd()}).")
    with open(path, "rb") as file:
        lines = file.read().removeprefix(b"\xef\xbb\xbf").splitlines()
    header = _cells(lines[0], path, 1) if lines else []
    if missing := [column for column in COLUMNS if column not in header]:
        raise InputError(
            f"{path}:1: the header must name {' and '.join(COLUMNS)}. "
            f"Received: {header}; missing: {', '.join(missing)}."
        )
    text, label = (header.index(column) for column in COLUMNS)
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        cells = _cells(line, path, number)
        if len(cells) != len(header):
            raise InputError(
                f"{path}:{number}: {len(cells)} columns where the header has {len(header)}: "
                "replace tabs and line breaks inside texts by spaces."
            )
        rows.append((cells[text], cells[label]))
    if not rows:
        raise InputError(f"{path} has no rows below its header.")
    return rows


def _cells(line: bytes, path: str, number: int) -> list[str]:
    try:
        return line.decode("utf-8").split("\t")  # quotes are text, not quoting
    except UnicodeDecodeError as error:
        raise InputError(f"{path}:{number} must be UTF-8: {error}. Convert the file.") from None
