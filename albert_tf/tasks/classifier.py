"""Sequence classification: a label for a text or a pair of texts."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf import settings
from albert_tf.checkpoints import load_config, read_checkpoint
from albert_tf.encoder import INPUTS, AlbertEncoder
from albert_tf.errors import ConfigError, InputError
from albert_tf.layers import common
from albert_tf.runs import RunDir
from albert_tf.tokenization import SpecialIds

KIND = "classifier"


@dataclasses.dataclass(frozen=True)
class ClassifierTask:
    """The `task` section of a classifier's config.json.

    labels: the names, in the order of the logits.
    pair: whether an example is two texts.
    dropout: before the classifier's dense layer (paper, Table 14: 0.1).
    """

    labels: tuple[str, ...]
    seq_length: int = 128
    pair: bool = False
    dropout: float = 0.1
    kind: str = KIND

    def __post_init__(self) -> None:
        if len(set(self.labels)) < 2 or len(set(self.labels)) != len(self.labels):
            raise ConfigError(
                f"`task.labels` must be at least two different names. Received: {self.labels}."
            )
        if self.seq_length < 5:
            raise ConfigError(
                "`task.seq_length` must be at least 5, for a pair with its special pieces. "
                f"Received: {self.seq_length}."
            )
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"`task.dropout` must be in [0, 1). Received: {self.dropout}.")


class SequenceClassifier(tf_keras.Model):
    """pooled_output -> dropout -> dense (BERT section 4.1).

    Args:
      encoder: an `AlbertEncoder`, or any layer of TF Hub's contract, such as a `hub.KerasLayer`.

    Inputs: the encoder's dict of int32 [B, S]. Output: logits float32 [B, number of labels].
    """

    def __init__(
        self, encoder: tf_keras.layers.Layer, task: ClassifierTask, name: str = "classifier"
    ) -> None:
        super().__init__(name=name)
        self.encoder = encoder
        self.task = task
        self.head = tf_keras.layers.Dense(
            len(task.labels),
            kernel_initializer=tf_keras.initializers.TruncatedNormal(stddev=0.02),
            dtype=tf.float32,
            name="head",
        )

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        pooled = self.encoder(dict(inputs), training=training)["pooled_output"]
        key = common.new_dropout_key() if training and self.task.dropout else None
        return self.head(common.dropout(pooled, self.task.dropout, key))

    def create_weights(self) -> "SequenceClassifier":
        """Creates every weight by one call on a batch of padding; returns self."""
        self({name: tf.zeros([1, 8], tf.int32) for name in INPUTS})
        return self


def load_classifier(path: str) -> SequenceClassifier:
    """The fine-tuned classifier of a run folder.

    Raises:
      InputError: the run trained something else, or its checkpoint does not fit.
    """
    values = RunDir(path).config()
    if values.get("task", {}).get("kind") != KIND:
        raise InputError(
            f"{path!r} is no classifier's run: its task is {values.get('task', {}).get('kind')!r}."
        )
    encoder = AlbertEncoder(load_config(path))
    task = settings.from_dict(ClassifierTask, values["task"], "task.")
    model = SequenceClassifier(encoder, task).create_weights()
    read_checkpoint(tf.train.Checkpoint(model=model), path)
    return model


def featurize(
    first: Sequence[Sequence[int]],
    second: Sequence[Sequence[int]] | None,
    seq_length: int,
    special: SpecialIds,
) -> dict[str, np.ndarray]:
    """[CLS] A [SEP] or [CLS] A [SEP] B [SEP], cut at the tail of the longer, padded: int32 [N, S].

    Args:
      first, second: ids of each example's texts, without special pieces.
    """
    features: dict[str, np.ndarray] = {
        name: np.zeros((len(first), seq_length), np.int32) for name in INPUTS
    }
    features["input_word_ids"][:] = special.pad
    for row, a in enumerate(first):
        b = second[row] if second is not None else []
        keep_a, keep_b = _fit(len(a), len(b), seq_length - (3 if second is not None else 2))
        ids = [special.cls, *a[:keep_a], special.sep]
        begin = len(ids)
        if second is not None:
            ids += [*b[:keep_b], special.sep]
        features["input_word_ids"][row, : len(ids)] = ids
        features["input_mask"][row, : len(ids)] = 1
        features["input_type_ids"][row, begin : len(ids)] = 1
    return features


def _fit(a: int, b: int, room: int) -> tuple[int, int]:
    """Lengths after popping from the longer one, the second on a tie, until both fit."""
    if a + b <= room:
        return a, b
    if min(a, b) <= room // 2:
        return (room - b, b) if a > b else (a, room - a)
    return room - room // 2, room // 2
