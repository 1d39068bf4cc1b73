"""Multiple choice: which of several options answers a question, with or without a context."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Self

import tensorflow as tf
import tf_keras

from albert_tf.models.encoder import INPUTS, call_symbolically
from albert_tf.models.layers import common
from albert_tf.runtime.bounds import MOST_PIECES, POSITIVE, at_least, at_most, between, one_of
from albert_tf.tasks.features import LONG_TEXTS
from albert_tf.tasks.task_model import TaskModel, head_dense
from albert_tf.tasks.task_settings import TaskSettings

ABSENT = -1e9  # the logit of an option that a question does not have


@dataclasses.dataclass(frozen=True)
class MultipleChoiceSettings(TaskSettings):
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
      logit_temperature: what the trained logits are divided by; `training.calibrate` chooses it.
    """

    FROM_DATA = ("num_choices", "logit_temperature")

    seq_length: Annotated[int, at_least(5), MOST_PIECES] = 512
    num_choices: Annotated[int, at_least(2), at_most(2**10)] = 4
    qa_length: Annotated[int, at_least(1), MOST_PIECES] = 128
    dropout: Annotated[float, between("[0, 1)")] = 0.1
    long_texts: Annotated[str, one_of(*LONG_TEXTS)] = "cut"
    logit_temperature: Annotated[float, POSITIVE] = 1.0
    kind: str = "multiple_choice"

    @property
    def max_qa_pieces(self) -> int:
        """The maximum pieces of question and option in a sequence."""
        pieces = self.seq_length - 3  # [CLS] and two [SEP]
        return min(self.qa_length, pieces if self.long_texts == "cut" else pieces // 2)


@tf_keras.saving.register_keras_serializable("albert_tf")
class MultipleChoiceModel(TaskModel):
    """A multiple-choice model: pooled_output -> dropout -> dense, one score per option.

    The loss is the cross-entropy of the softmax over the options. Inputs: the encoder's dict of
    int32 [B, C, S]; questions with fewer than C options have rows whose `input_mask` is 0. Output:
    logits float32 [B, C], `ABSENT` for those rows.
    """

    task_class = MultipleChoiceSettings
    task: MultipleChoiceSettings

    def new_head(self) -> tf_keras.layers.Layer:
        """Return the dense layer of the scores."""
        return head_dense(1, "head")

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


def option_letter(index: int) -> str:
    """Return A for option 0, ..., Z for option 25, AA for option 26, and so on."""
    letter = chr(ord("A") + index % 26)
    return letter if index < 26 else option_letter(index // 26 - 1) + letter
