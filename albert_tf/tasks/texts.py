"""What the kinds on a text or a pair of texts share: settings, features, the exported module."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, ClassVar, TypeVar

import numpy as np

from albert_tf.graph.text_module import TextModule
from albert_tf.runtime.bounds import MOST_PIECES, at_least, between, one_of
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.features import LONG_TEXTS, TextFeatures, pack, split_windows
from albert_tf.tasks.kind import Kind
from albert_tf.tasks.task_model import TaskModel
from albert_tf.tasks.task_settings import TaskSettings
from albert_tf.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSettings(TaskSettings):
    """The settings shared by the tasks on a text or a pair of texts.

    Attributes:
      seq_length: the maximum pieces of an example, special pieces included.
      pair: True if an example is two texts.
      dropout: the rate before the head's dense layer (paper, Table 14: 0.1).
      long_texts: `cut` truncates what is longer than `seq_length`. `mean` and `max` read it in
        windows of equal length, each with the text's label in training, and predict the mean or the
        maximum of their probabilities or scores.
    """

    seq_length: Annotated[int, at_least(5, "for a pair with its special pieces"), MOST_PIECES] = 128
    pair: bool = False
    dropout: Annotated[float, between("[0, 1)")] = 0.1
    long_texts: Annotated[str, one_of(*LONG_TEXTS)] = "cut"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pair and self.long_texts != "cut":
            raise ConfigError(
                "`task.long_texts` must be cut for pairs of texts, which are not read in windows. "
                f"Received: {self.long_texts}."
            )

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """Return the labels of N examples, which must be known, as a target, float32 [N]."""
        return np.array([example.label for example in examples], np.float32)


TextSettingsT = TypeVar("TextSettingsT", bound=TextSettings)


def featurize_texts(
    examples: Sequence[TextExample], tokenizer: Tokenizer, task: TextSettings
) -> TextFeatures:
    """Build the features of texts or pairs, or of the windows of long texts.

    The target `label`, `task.targets` of the examples, exists if every example has a label.

    Raises:
      InputError: an example is a pair and the task takes single texts, or the reverse; or a label
        is none of the task's.
    """
    for number, example in enumerate(examples):
        if (example.second is not None) != task.pair:
            raise InputError(
                f"The task takes {'pairs of texts' if task.pair else 'single texts'}. Example "
                f"{number} has {'one text' if task.pair else 'two'}: {example.first[:80]!r}."
            )
    is_known = all(example.label is not None for example in examples)
    targets = {"label": task.targets(examples)} if is_known else {}
    first = tokenizer.encode_batch([example.first for example in examples])
    second = None
    if task.pair:
        second = tokenizer.encode_batch([example.second or "" for example in examples])
    row: np.ndarray = np.arange(len(examples), dtype=np.int32)
    if task.long_texts != "cut":
        first, row = split_windows(first, task.seq_length - 2)
    sequences = pack(first, second, task.seq_length, tokenizer.special)
    targets = {name: values[row] for name, values in targets.items()}
    return TextFeatures(sequences, task.seq_length, targets, example=row)


class TextKind(Kind[TextSettingsT]):
    """A kind of task on a text or a pair of texts."""

    options: ClassVar[Sequence[str]] = ("precision", "depths")
    example, features = TextExample, TextFeatures
    takes_strings = True
    open_settings = ("pair", "seq_length")  # for TransformersHead

    def featurize(
        self, examples: Sequence[TextExample], tokenizer: Tokenizer, task: TextSettingsT
    ) -> TextFeatures:
        """Return the features of texts or pairs; see `featurize_texts`."""
        return featurize_texts(examples, tokenizer, task)


class TaskTextModule(TextModule):
    """A `TextModule` of a fine-tuned model, with the settings of its task.

    Args:
      model: the fine-tuned model.
      tokenizer: the model's tokenizer.
      shape: shape of `predict`'s output for one row.
      depths: see `TextModule`.
    """

    def __init__(
        self, model: TaskModel, tokenizer: Tokenizer, shape: Sequence[int], depths: Sequence[int]
    ) -> None:
        task = model.task
        super().__init__(
            model.encoder,
            tokenizer,
            task.seq_length,
            task.pair,
            shape,
            depths,
            name=task.kind,
            long_texts=task.long_texts,
        )
        self._weights = model.variables
