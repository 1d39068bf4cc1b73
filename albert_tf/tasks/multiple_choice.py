"""Multiple choice: which of several options answers a question about a context (RACE)."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import numpy as np
import tensorflow as tf
import tf_keras
from scipy.special import softmax

from albert_tf.models.encoder import INPUTS, call_symbolically
from albert_tf.models.layers import common
from albert_tf.runtime.bounds import Bounded, at_least, between
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.examples import ChoiceExample
from albert_tf.tasks.features import Features, pack
from albert_tf.tasks.task_model import TaskModel, head_dense
from albert_tf.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class MultipleChoiceTask(Bounded):
    """The `task` section of a multiple-choice run's config.json.

    Attributes:
      seq_length: the maximum pieces of context, question and option, special pieces included.
      num_choices: the number of options of every question.
      qa_length: the maximum pieces of question and option. Longer ones keep their last pieces; the
        context gets the rest of the sequence.
      dropout: the rate before the head's dense layer (paper, Table 14: 0.1).
    """

    KEY = "`task.{}`"

    seq_length: Annotated[int, at_least(5)] = 512
    num_choices: Annotated[int, at_least(2)] = 4
    qa_length: Annotated[int, at_least(1)] = 128
    dropout: Annotated[float, between("[0, 1)")] = 0.1
    kind: str = "multiple_choice"


@tf_keras.saving.register_keras_serializable("albert_tf")
class MultipleChoice(TaskModel):
    """A multiple-choice model: pooled_output -> dropout -> dense, one score per option.

    The loss is the cross-entropy of the softmax over the options. Inputs: the encoder's dict of
    int32 [B, C, S]. Output: logits float32 [B, C].
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
        length = common.shape_of(inputs["input_word_ids"])[-1]
        flat = {name: tf.reshape(inputs[name], [-1, length]) for name in INPUTS}  # [B C, S]
        outputs, key = self.encode(flat, training)
        scores = self.head(common.dropout(outputs["pooled_output"], self.task.dropout, key))
        return tf.reshape(scores, [-1, self.task.num_choices])

    def training_losses(self) -> tf_keras.losses.Loss:
        """Return the argument of `compile(loss=...)`."""
        return tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def create_weights(self) -> Self:
        """Create every weight by one symbolic call; return self."""
        call_symbolically(self, INPUTS, self.task.num_choices)
        return self


def featurize_choices(
    examples: Sequence[ChoiceExample], tokenizer: Tokenizer, task: MultipleChoiceTask
) -> Features:
    """Build [CLS] context [SEP] question and option [SEP] for each option.

    Contexts are truncated at the end. The target `label` [N] exists if every example has a label.

    Raises:
      InputError: the number of options of a question differs from the task's.
    """
    for row, example in enumerate(examples):
        if len(example.options) != task.num_choices:
            raise InputError(
                f"Every question must have {task.num_choices} options. Received in example {row} "
                f"({example.question!r}): {len(example.options)}."
            )
    texts = list(dict.fromkeys(example.context for example in examples))
    contexts = dict(zip(texts, tokenizer.encode_batch(texts), strict=True))
    questions = tokenizer.encode_batch(
        [fill_blanks(e.question, option) for e in examples for option in e.options]
    )
    max_pieces = task.seq_length - 3  # [CLS] and two [SEP]
    second = [ids[-min(task.qa_length, max_pieces) :] for ids in questions]
    full_contexts = [contexts[example.context] for example in examples for _ in example.options]
    first = [
        ids[: max_pieces - len(other)] for ids, other in zip(full_contexts, second, strict=True)
    ]
    kept = [len(ids) for part in (first, second) for ids in part]
    full = [len(ids) for part in (full_contexts, questions) for ids in part]
    cut = np.not_equal(kept, full).reshape(2, len(second)).any(axis=0)
    sequences = pack(first, second, task.seq_length, tokenizer.special)
    sequences = dataclasses.replace(sequences, cut=cut)
    labels = [example.label for example in examples]
    known = {} if None in labels else {"label": np.array(labels, np.int32)}
    return Features(sequences, task.seq_length, known, task.num_choices)


def fill_blanks(question: str, option: str) -> str:
    """Put the option into the question's blanks, or after a question without blanks."""
    return question.replace("_", option) if "_" in question else f"{question} {option}"


def decode_choices(
    logits: np.ndarray,
    features: Features,
    examples: Sequence[ChoiceExample],
    task: MultipleChoiceTask,
) -> list[dict[str, Any]]:
    """Return a dict for each example.

    `choice` is the index of the best option, `label` is its letter, and `probabilities` are those
    of the options.
    """
    return [
        {
            "choice": int(row.argmax()),
            "label": chr(ord("A") + int(row.argmax())),
            "probabilities": row.tolist(),
        }
        for row in softmax(logits.astype(np.float64), axis=-1)
    ]
