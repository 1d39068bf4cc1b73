"""What a teacher says of unlabelled texts: asked once, kept in TFRecords."""

import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from albert_tf import outputs
from albert_tf.errors import InputError, InputNotFoundError
from albert_tf.progress import Progress
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.predictor import Predictor, load_predictor, predict

CHUNK = 4096  # texts that are in memory together
_SCHEMA = {
    "first": tf.io.FixedLenFeature([], tf.string),
    "second": tf.io.FixedLenFeature([], tf.string),
    "output": tf.io.VarLenFeature(tf.float32),
}


def examples_of(path: str, pair: bool) -> Iterator[TextExample]:
    """A text a line, or two with a tab between them.

    Raises:
      InputNotFoundError: no such file.
      InputError: a line of another form, or of no text.
    """
    if not os.path.isfile(path):
        raise InputNotFoundError(f"--texts: no file {path!r} (working folder {os.getcwd()}).")
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            cells = line.rstrip("\r\n").split("\t")
            if len(cells) != 1 + pair or not all(cells):
                raise InputError(
                    f"--texts={path}:{number}: a line must be "
                    f"{'two texts with a tab between them' if pair else 'a text without tabs'}. "
                    f"Received: {line[:80]!r}."
                )
            yield TextExample(cells[0], cells[1] if pair else None)


def ask(teacher: str, examples: Iterable[TextExample], folder: str, batch_size: int) -> None:
    """Writes texts and the teacher's outputs to `folder`, in bounded memory, unless it is there."""
    if os.path.isfile(os.path.join(folder, "manifest.json")):
        print(f"{folder}: the teacher has been asked already.")
        return
    predictor, count = load_predictor(teacher), 0
    with (
        outputs.new_folder(folder) as work,
        tf.io.TFRecordWriter(os.path.join(work, "outputs.tfrecord")) as out,
        Progress("texts asked of the teacher") as progress,
    ):
        stream = iter(examples)
        while chunk := list(itertools.islice(stream, CHUNK)):
            for record in _records(predictor, chunk, batch_size):
                out.write(record)
            count += len(chunk)
            progress.advance(len(chunk))
        if not count:
            raise InputError("--texts: no text to ask the teacher about.")
        out.close()
        outputs.write_json(
            os.path.join(work, "manifest.json"), {"teacher": teacher, "texts": count}
        )


def _records(predictor: Predictor, examples: list[TextExample], batch_size: int) -> Iterator[bytes]:
    kind = KINDS[predictor.task.kind]
    features = kind.featurize(examples, predictor.tokenizer, predictor.task)
    said = predict(predictor.model, features, batch_size)
    for example, output in zip(examples, said.reshape(len(examples), -1), strict=True):
        values = {
            "first": _bytes(example.first),
            "second": _bytes(example.second or ""),
            "output": tf.train.Feature(float_list=tf.train.FloatList(value=output.tolist())),
        }
        yield tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString()


def _bytes(text: str) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))


def answers_in(folder: str, pair: bool) -> tuple[list[TextExample], np.ndarray]:
    """(texts, outputs float32 [N, C]) that `ask` left."""
    with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
        count = json.load(file)["texts"]
    examples, said = [], []
    dataset = tf.data.TFRecordDataset(os.path.join(folder, "outputs.tfrecord")).batch(CHUNK)
    for batch in dataset.map(lambda records: tf.io.parse_example(records, _SCHEMA)):
        second = batch["second"].numpy() if pair else [None] * len(batch["first"])
        for one, other in zip(batch["first"].numpy(), second, strict=True):
            examples.append(TextExample(one.decode(), other.decode() if pair else None))
        said.append(tf.sparse.to_dense(batch["output"]).numpy())
    assert len(examples) == count, "the manifest is written last"
    return examples, np.concatenate(said)


def fingerprint(examples: Iterable[TextExample]) -> str:
    """16 hex digits that change with any text."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr((example.first, example.second)).encode())
    return digest.hexdigest()[:16]
