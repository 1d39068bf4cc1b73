"""Multiple choice: which of several options answers a question, with or without a context."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import numpy as np
import tensorflow as tf
import tf_keras
from scipy.special import softmax

from albert_tf.models.encoder import INPUTS, call_symbolically
from albert_tf.models.layers import common
from albert_tf.runtime.arrays import ragged_ranges
from albert_tf.runtime.bounds import MOST_PIECES, Bounded, at_least, at_most, between, one_of
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.classifier.model import average_logits
from albert_tf.tasks.examples import ChoiceExample
from albert_tf.tasks.features import LONG_TEXTS, Sequences, TextFeatures, pack, split_windows
from albert_tf.tasks.task_model import TaskModel, head_dense
from albert_tf.text.tokenizer import Tokenizer

ABSENT = -1e9  # the logit of an option that a question does not have


@dataclasses.dataclass(frozen=True)
class MultipleChoiceTask(Bounded):
    """The `task` section of a multiple-choice run's config.json.

    Attributes:
      seq_length: the maximum pieces of context, question and option, special pieces included.
      num_choices: the largest number of options of a training question. It is only the shape of
        inputs that must have one; other questions may have any number from 2.
      qa_length: the maximum pieces of question and option. Longer ones keep their last pieces; the
        context gets the rest of the sequence. With windows it gets at least half of it.
      dropout: the rate before the head's dense layer (paper, Table 14: 0.1).
      long_texts: `cut` truncates contexts that do not fit. `mean` and `max` read them in windows of
        equal length, each with the question's label in training, and predict from the mean or the
        maximum of the windows' probabilities.
    """

    KEY = "`task.{}`"

    seq_length: Annotated[int, at_least(5), MOST_PIECES] = 512
    num_choices: Annotated[int, at_least(2), at_most(2**10)] = 4
    qa_length: Annotated[int, at_least(1), MOST_PIECES] = 128
    dropout: Annotated[float, between("[0, 1)")] = 0.1
    long_texts: Annotated[str, one_of(*LONG_TEXTS)] = "cut"
    kind: str = "multiple_choice"

    @property
    def max_qa_pieces(self) -> int:
        """The maximum pieces of question and option in a sequence."""
        pieces = self.seq_length - 3  # [CLS] and two [SEP]
        return min(self.qa_length, pieces if self.long_texts == "cut" else pieces // 2)


@tf_keras.saving.register_keras_serializable("albert_tf")
class MultipleChoice(TaskModel):
    """A multiple-choice model: pooled_output -> dropout -> dense, one score per option.

    The loss is the cross-entropy of the softmax over the options. Inputs: the encoder's dict of
    int32 [B, C, S]; questions with fewer than C options have rows whose `input_mask` is 0. Output:
    logits float32 [B, C], `ABSENT` for those rows.
    """

    task_class = MultipleChoiceTask

    def __init__(
        self,
        encoder: tf_keras.layers.Layer,
        task: MultipleChoiceTask,
        **kwargs: Any,
    ) -> None:
        super().__init__(encoder, task, **kwargs)
        self.head = head_dense(1, "head")

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """Return the logits; see the class for shapes."""
        _, count, length = common.shape_of(inputs["input_word_ids"])
        flat = {name: tf.reshape(inputs[name], [-1, length]) for name in INPUTS}  # [B C, S]
        outputs, key = self.encode(flat, training, pooled_only=True)
        scores = self.head(common.dropout(outputs["pooled_output"], self.task.dropout, key))
        is_option = tf.reduce_any(inputs["input_mask"] > 0, axis=-1)  # [B, C]
        return tf.where(is_option, tf.reshape(scores, [-1, count]), ABSENT)

    def training_losses(self) -> tf_keras.losses.Loss:
        """Return the argument of `compile(loss=...)`."""
        return tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def create_weights(self) -> Self:
        """Create every weight by one symbolic call; return self."""
        call_symbolically(self, INPUTS, self.task.num_choices)
        return self


def featurize_choices(
    examples: Sequence[ChoiceExample], tokenizer: Tokenizer, task: MultipleChoiceTask
) -> TextFeatures:
    """Build [CLS] context [SEP] question and option [SEP] for each option.

    Contexts are truncated at the end, or each of their windows is a unit. A unit has as many
    sequences as the question with the most options; those of missing options have no pieces. The
    target `label` [N] exists if every example has a label.

    Raises:
      InputError: a question has fewer than two options.
    """
    for row, example in enumerate(examples):
        if len(example.options) < 2:
            raise InputError(
                f"Every question must have at least 2 options. Received in example {row} "
                f"({example.question!r}): {len(example.options)}."
            )
    texts = list(dict.fromkeys(example.context for example in examples))
    contexts = dict(zip(texts, tokenizer.encode_batch(texts), strict=True))
    questions = tokenizer.encode_batch(
        [fill_blanks(e.question, option) for e in examples for option in e.options]
    )
    max_pieces = task.seq_length - 3  # [CLS] and two [SEP]
    second = [ids[-task.max_qa_pieces :] for ids in questions]
    counts = np.array([len(example.options) for example in examples], np.int64)
    parts, unit = [contexts[example.context] for example in examples], np.arange(len(examples))
    if task.long_texts != "cut" and examples:
        longest = np.maximum.reduceat([*map(len, second)], np.cumsum(counts) - counts)
        parts, unit = split_windows(parts, max_pieces - longest)
    # The rows of `questions` for each unit.
    rows = ragged_ranges((np.cumsum(counts) - counts)[unit], counts[unit]).tolist()
    counts = counts[unit]
    full_contexts = [ids for ids, count in zip(parts, counts, strict=True) for _ in range(count)]
    questions, second = [questions[row] for row in rows], [second[row] for row in rows]
    first = [
        ids[: max_pieces - len(other)] for ids, other in zip(full_contexts, second, strict=True)
    ]
    kept = [len(ids) for part in (first, second) for ids in part]
    full = [len(ids) for part in (full_contexts, questions) for ids in part]
    cut = np.not_equal(kept, full).reshape(2, len(second)).any(axis=0)
    sequences = pack(first, second, task.seq_length, tokenizer.special)
    per_unit = int(counts.max()) if examples else task.num_choices
    is_option = (np.arange(per_unit) < counts[:, None]).ravel()  # [N x per_unit]
    sequences = Sequences(
        sequences.ids,
        _placed(sequences.lengths, is_option),
        _placed(sequences.first_lengths, is_option),
        sequences.pad,
        _placed(cut, is_option),
    )
    labels = [example.label for example in examples]
    known = {} if None in labels else {"label": np.array(labels, np.int32)[unit]}
    unit = unit.astype(np.int32)
    return TextFeatures(
        sequences, task.seq_length, known, per_unit, limits=_limits(task), example=unit
    )


def _limits(task: MultipleChoiceTask) -> str:
    """Return the limits beyond which a question is truncated, for notes."""
    whole, question = f"task.seq_length={task.seq_length}", f"task.qa_length={task.qa_length}"
    if task.long_texts == "cut":
        return f"{whole} or {question}"
    return f"{question}, or half of {whole},"


def _placed(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the values at the True places, and 0 at the others."""
    placed: np.ndarray = np.zeros(len(places), values.dtype)
    placed[places] = values
    return placed


def fill_blanks(question: str, option: str) -> str:
    """Put the option into the question's blanks, or after a question without blanks.

    A blank is a run of underscores, also between letters.
    """
    filled, count = re.subn("_+", lambda _: option, question)
    return filled if count else f"{question} {option}"


def decode_choices(
    logits: np.ndarray,
    features: TextFeatures,
    examples: Sequence[ChoiceExample],
    task: MultipleChoiceTask,
) -> list[dict[str, Any]]:
    """Return a dict for each example.

    `choice` is the index of the best option, `label` is its letter, and `probabilities` are those
    of the question's own options.
    """
    found = []
    pooled = features.pooled(softmax(logits.astype(np.float64), axis=-1), task.long_texts)
    for row, example in zip(pooled, examples, strict=True):
        probabilities = row[: len(example.options)] / row.sum()
        choice = int(probabilities.argmax())
        found.append(
            {
                "choice": choice,
                "label": option_letter(choice),
                "probabilities": probabilities.tolist(),
            }
        )
    return found


def average_choices(members: Sequence[np.ndarray]) -> np.ndarray:
    """Return logits [N, C] whose probabilities are the mean of the members'."""
    with np.errstate(divide="ignore"):  # missing options have the probability 0
        return average_logits(members)


def option_letter(index: int) -> str:
    """Return A for option 0, ..., Z for option 25, AA for option 26, and so on."""
    letter = chr(ord("A") + index % 26)
    return letter if index < 26 else option_letter(index // 26 - 1) + letter
