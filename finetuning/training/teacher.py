"""The outputs of a teacher for texts, computed once and stored as TFRecords."""

import dataclasses
import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.models.checkpoints import latest_checkpoint
from albert_tf.runtime import outputs, settings
from albert_tf.runtime.compression import format_of
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.paths import require_file
from albert_tf.runtime.text_files import lines_of
from albert_tf.tasks.examples import TextExample, TokenExample
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.predictor import Predictor, load_predictor, predict
from albert_tf.tasks.tokens.features import TokenFeatures
from albert_tf.training.progress import Progress
from finetuning.datasets.table_files import FORMATS, open_table
from finetuning.datasets.text_classification import PAIR, SINGLE

CHUNK = 4096  # texts in memory at a time
_SCHEMA = {
    "first": tf.io.FixedLenFeature([], tf.string),
    "second": tf.io.FixedLenFeature([], tf.string),
    "output": tf.io.VarLenFeature(tf.float32),
    "word_first": tf.io.VarLenFeature(tf.int64),  # only of token classifiers
}
Example = TextExample | TokenExample


def examples_of(path: str, pair: bool, columns: Sequence[str] = ()) -> Iterator[TextExample]:
    """Yield the texts, or pairs, of a table or of plain lines; either may be compressed.

    A .csv, .tsv or .jsonl file is a table with the column text, or with text_a and text_b, or with
    the teacher's own `columns`; others are ignored. In any other file, each line is a text, or two
    separated by a tab.

    Raises:
      InputNotFoundError: there is no such file.
      InputError: a column is missing, a row or line has another form or an empty text, or the file
        is not UTF-8.
    """
    require_file(path, "--texts")
    if format_of(path) in FORMATS:
        remedy = "Rename the column, or the file to .txt if its lines are texts."
        table = dataclasses.replace(open_table(path), remedy=remedy)
        for _, cells in table.select(columns or (PAIR if pair else SINGLE)):
            yield TextExample(cells[0], cells[1] if pair else None)
        return
    for number, line in lines_of(path, "--texts"):
        cells = line.rstrip("\r\n").split("\t")
        if len(cells) != 1 + pair or not all(cell.strip() for cell in cells):
            raise InputError(
                f"--texts={path}:{number}: a line must be "
                f"{'two texts separated by a tab' if pair else 'a text without tabs'}. "
                f"Received: {line[:80]!r}."
            )
        yield TextExample(cells[0], cells[1] if pair else None)


def identity_of(teacher: str, examples: Iterable[Example]) -> dict[str, Any]:
    """Return what the teacher's outputs depend on: its weights and the texts.

    The texts are read once, from first to last.
    """
    digest, count = hashlib.sha256(), 0
    for example in examples:
        digest.update(repr(_texts(example)).encode())
        count += 1
    with open(latest_checkpoint(teacher) + ".index", "rb") as file:  # has the weights' checksums
        weights = hashlib.sha256(file.read()).hexdigest()
    return {
        "teacher": os.path.normpath(teacher),
        "weights": weights[:16],
        "texts": digest.hexdigest()[:16],
        "count": count,
    }


def _texts(example: Example) -> tuple[str, str | None]:
    if isinstance(example, TokenExample):
        return example.text, None
    return example.first, example.second


def write_outputs(
    identity: Mapping[str, Any], examples: Iterable[Example], folder: str, batch_size: int
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
    predictor = load_predictor(identity["teacher"])
    with (
        outputs.new_folder(folder) as partial,
        Progress("texts predicted by the teacher", identity["count"]) as progress,
    ):
        with tf.io.TFRecordWriter(os.path.join(partial, "outputs.tfrecord")) as out:
            stream = iter(examples)
            while chunk := list(itertools.islice(stream, CHUNK)):
                for record in _records(predictor, chunk, batch_size):
                    out.write(record)
                progress.advance(len(chunk))
        outputs.write_json(os.path.join(partial, "manifest.json"), identity)


def _manifest(folder: str) -> dict[str, Any]:
    return outputs.read_json(os.path.join(folder, "manifest.json"))


def _records(predictor: Predictor, examples: list[Example], batch_size: int) -> Iterator[bytes]:
    kind = KINDS[predictor.task.kind]
    features = kind.featurize(examples, predictor.tokenizer, predictor.task)
    rows = predict(predictor.model, features, batch_size)
    if isinstance(features, TokenFeatures):
        logits, bounds = features.of_words(rows), features.word_bounds
        rows = np.split(logits, bounds[1:-1])
        firsts = np.split(features.word_first, bounds[1:-1])
    else:
        firsts = [np.zeros(0, np.int64)] * len(examples)
    for example, output, first in zip(examples, rows, firsts, strict=True):
        one, other = _texts(example)
        values = {
            "first": _bytes(one),
            "second": _bytes(other or ""),
            "output": tf.train.Feature(float_list=tf.train.FloatList(value=np.ravel(output))),
            "word_first": tf.train.Feature(int64_list=tf.train.Int64List(value=first)),
        }
        yield tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString()


def _bytes(text: str) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))


def read_outputs(folder: str, pair: bool) -> Iterator[tuple[list[TextExample], np.ndarray]]:
    """Yield (texts, outputs float32 [n, C]) from `write_outputs`, at most CHUNK at a time."""
    for batch in _batches(folder):
        second = batch["second"].numpy() if pair else [None] * len(batch["first"])
        texts = zip(batch["first"].numpy(), second, strict=True)
        examples = [
            TextExample(one.decode(), other.decode() if pair else None) for one, other in texts
        ]
        yield examples, tf.sparse.to_dense(batch["output"]).numpy()


def read_word_outputs(
    folder: str, num_tags: int
) -> Iterator[tuple[list[TokenExample], list[tuple[np.ndarray, np.ndarray]]]]:
    """Yield texts and their words' outputs from `write_outputs`, at most CHUNK at a time.

    The outputs of a text are the first character of each of its words, int64 [U], and the logits of
    the words' tags, float32 [U, `num_tags`].
    """
    for batch in _batches(folder):
        firsts, outputs = (
            tf.RaggedTensor.from_sparse(batch[name]) for name in ("word_first", "output")
        )
        rows = zip(firsts, outputs, strict=True)
        yield (
            [TokenExample(text.decode()) for text in batch["first"].numpy()],
            [(first.numpy(), output.numpy().reshape(-1, num_tags)) for first, output in rows],
        )


def word_targets(
    features: TokenFeatures, answers: Sequence[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """Return the teacher's logits at the student's words, float32 [N, S, tags], NaN elsewhere.

    `answers` are those of `read_word_outputs` for the same texts. Words are matched by their first
    characters; one that the teacher's vocabulary does not have has no target.
    """
    shape = [len(features), features.seq_length, answers[0][1].shape[1]]
    targets: np.ndarray = np.full(shape, np.nan, np.float32)
    for row, (first, logits) in enumerate(answers):
        words = np.arange(*features.word_bounds[row : row + 2])
        at: Any = np.searchsorted(first, features.word_first[words])
        is_shared = np.append(first, -1)[at] == features.word_first[words]
        shared = words[is_shared]
        place = features.word_window[shared], features.word_position[shared]
        targets[place] = logits[at[is_shared]]
    return targets


def _batches(folder: str) -> Iterator[dict[str, Any]]:
    count = 0
    dataset = tf.data.TFRecordDataset(os.path.join(folder, "outputs.tfrecord")).batch(CHUNK)
    for batch in dataset.map(lambda records: tf.io.parse_example(records, _SCHEMA)):
        count += len(batch["first"])
        yield batch
    assert count == _manifest(folder)["count"], "the manifest is written last"
