"""The outputs of a teacher for texts, computed once and stored as TFRecords."""

import dataclasses
import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.runtime import pretrained, settings
from albert_tf.runtime.errors import InputError, shortened
from albert_tf.runtime.files import outputs
from albert_tf.runtime.files.compression import format_of
from albert_tf.runtime.files.paths import require_file
from albert_tf.runtime.files.text_files import lines_of
from albert_tf.training.progress import Progress
from finetuning.datasets.tables.table_files import FORMATS, open_table
from finetuning.kinds.kind import FinetuningKind, TeacherOutput
from finetuning.training.distillation_teachers import Teacher

CHUNK = 4096  # texts in memory at a time
_SCHEMA = {
    "text": tf.io.VarLenFeature(tf.string),
    "output": tf.io.VarLenFeature(tf.float32),
    "starts": tf.io.VarLenFeature(tf.int64),
}


def examples_of(path: str, columns: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the texts of each row of a table or each line; either may be compressed.

    A .csv, .tsv, .jsonl, .json or .parquet file is a table with these `columns`; others are
    ignored. In any other file, each line has as many texts, separated by tabs.

    Raises:
      InputNotFoundError: there is no such file.
      InputError: a column is missing, a row or line has another form or an empty text, or the file
        is not UTF-8.
    """
    require_file(path, "--texts")
    if format_of(path) in FORMATS:
        remedy = "Rename the column, or the file to .txt if its lines are texts."
        table = dataclasses.replace(open_table(path), remedy=remedy)
        yield from (cells for _, cells in table.select(columns))
        return
    for number, line in lines_of(path, "--texts"):
        cells = line.rstrip("\r\n").split("\t")
        if len(cells) != len(columns) or not all(cell.strip() for cell in cells):
            raise InputError(
                f"--texts={path}:{number}: a line must be "
                f"{'texts separated by tabs' if len(columns) > 1 else 'a text without tabs'}. "
                f"Received: {line[:80]!r}."
            )
        yield cells


def identity_of(teacher: Teacher, examples: Iterable[Any]) -> dict[str, Any]:
    """Return what the teacher's outputs depend on: its weights and the texts.

    The texts are read once, from first to last.
    """
    digest, count = hashlib.sha256(), 0
    for example in examples:
        digest.update(repr(example.texts).encode())
        count += 1
    return {
        "teacher": pretrained.name_of(teacher.path),
        "weights": teacher.weights(),
        "texts": digest.hexdigest()[:16],
        "count": count,
    }


def write_outputs(
    teacher: Teacher,
    identity: Mapping[str, Any],
    examples: Iterable[Any],
    folder: str,
    batch_size: int,
) -> None:
    """Write texts and the teacher's outputs to `folder`, unless they are already there.

    Memory is bounded.

    Raises:
      InputError: the folder holds outputs of another teacher or for other texts.
    """
    if os.path.isfile(os.path.join(folder, "manifest.json")):
        if differing := settings.differing_keys(_manifest(folder), identity):
            raise InputError(
                f"{folder} holds outputs of another teacher or for other texts (the folder's "
                f"value != yours): {'; '.join(differing)}. Pass another --output."
            )
        print(f"{folder}: the teacher's outputs already exist.")
        return
    outputs_of = teacher.load(batch_size)
    with (
        outputs.new_folder(folder) as partial,
        Progress("texts predicted by the teacher", identity["count"]) as progress,
    ):
        with tf.io.TFRecordWriter(os.path.join(partial, "outputs.tfrecord")) as out:
            stream = iter(examples)
            while chunk := list(itertools.islice(stream, CHUNK)):
                for record in _records(chunk, outputs_of(chunk)):
                    out.write(record)
                progress.advance(len(chunk))
        outputs.write_json(os.path.join(partial, "manifest.json"), identity)


def _manifest(folder: str) -> dict[str, Any]:
    return outputs.read_json(os.path.join(folder, "manifest.json"))


def _records(examples: list[Any], taught: Sequence[TeacherOutput]) -> Iterator[bytes]:
    for example, (output, starts) in zip(examples, taught, strict=True):
        encoded = [text.encode() for text in example.texts]
        values = {
            "text": tf.train.Feature(bytes_list=tf.train.BytesList(value=encoded)),
            "output": tf.train.Feature(float_list=tf.train.FloatList(value=np.ravel(output))),
            "starts": tf.train.Feature(int64_list=tf.train.Int64List(value=starts)),
        }
        yield tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString()


def read_outputs(
    folder: str, kind: FinetuningKind
) -> Iterator[tuple[list[Any], list[TeacherOutput]]]:
    """Yield (examples, their outputs) from `write_outputs`, at most CHUNK at a time."""
    for batch in _batches(folder):
        texts, outputs, starts = (_rows(batch[name]) for name in ("text", "output", "starts"))
        yield (
            [kind.of_texts(*(text.decode() for text in row)) for row in texts],
            [TeacherOutput(*pair) for pair in zip(outputs, starts, strict=True)],
        )


def _rows(values: tf.SparseTensor) -> list[np.ndarray]:
    """Return the values of each row; tensors of rows would take a millisecond each."""
    ragged = tf.RaggedTensor.from_sparse(values)
    return np.split(ragged.values.numpy(), ragged.row_splits.numpy()[1:-1])


def _batches(folder: str) -> Iterator[dict[str, Any]]:
    """Yield the records, CHUNK at a time.

    Raises:
      InputError: the file is damaged.
    """
    path, count, wanted = os.path.join(folder, "outputs.tfrecord"), 0, _manifest(folder)["count"]
    batches = iter(tf.data.TFRecordDataset(path).batch(CHUNK))
    while True:
        try:
            records = next(batches, None)
            batch = None if records is None else tf.io.parse_example(records, _SCHEMA)
        except tf.errors.OpError as error:
            raise _damaged(path, error.message.splitlines()[0]) from None
        if batch is None:
            break
        count += batch["text"].dense_shape[0].numpy()
        yield batch
    if count != wanted:
        raise _damaged(path, f"{count:,} records, not {wanted:,}")


def _damaged(path: str, what: str) -> InputError:
    return InputError(
        f"{path!r} must hold the teacher's outputs as they were written. Received: "
        f"{shortened(what)}. Remove its folder, and run the command again."
    )
