"""The kinds of tasks, with their settings, models, features and predictions."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from albert_tf.tasks.classifier.model import SequenceClassifier, average_logits, decode_labels
from albert_tf.tasks.examples import ChoiceExample, SpanExample, TextExample, TokenExample
from albert_tf.tasks.features import Features, TextFeatures
from albert_tf.tasks.multi_label.model import (
    MultiLabelClassifier,
    average_label_sets,
    decode_label_sets,
    featurize_label_sets,
)
from albert_tf.tasks.multiple_choice.model import (
    MultipleChoice,
    average_choices,
    decode_choices,
    featurize_choices,
)
from albert_tf.tasks.regressor.model import SequenceRegressor, average_scores, decode_scores
from albert_tf.tasks.spans.answers import average_spans, decode_spans
from albert_tf.tasks.spans.features import SpanFeatures, featurize_spans
from albert_tf.tasks.spans.model import SpanModel
from albert_tf.tasks.task_model import TaskModel
from albert_tf.tasks.texts import featurize_texts
from albert_tf.tasks.tokens.entities import decode_tokens
from albert_tf.tasks.tokens.features import TokenFeatures, featurize_tokens
from albert_tf.tasks.tokens.model import TokenClassifier


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of task.

    Attributes:
      example: the class of the examples.
      model: the class of the model; its arguments are (encoder, task).
      featurize: (examples, tokenizer, task) -> the features that the model reads.
      decode: (the model's outputs as arrays, features, examples, task) -> a dict for each example.
      average: the outputs of several models on the same features -> the ensemble's (paper, 4.11).
      features: the class of the features.
    """

    example: type
    model: type[TaskModel]
    featurize: Callable[..., Features]
    decode: Callable[..., list[dict[str, Any]]]
    average: Callable[[Sequence[Any]], Any]
    features: type[Features]

    @property
    def task(self) -> type:
        """The frozen dataclass of the task's settings."""
        return self.model.task_class


KINDS = {
    "classifier": Kind(
        TextExample,
        SequenceClassifier,
        featurize_texts,
        decode_labels,
        average_logits,
        TextFeatures,
    ),
    "multi_label": Kind(
        TextExample,
        MultiLabelClassifier,
        featurize_label_sets,
        decode_label_sets,
        average_label_sets,
        TextFeatures,
    ),
    "regressor": Kind(
        TextExample,
        SequenceRegressor,
        featurize_texts,
        decode_scores,
        average_scores,
        TextFeatures,
    ),
    "multiple_choice": Kind(
        ChoiceExample,
        MultipleChoice,
        featurize_choices,
        decode_choices,
        average_choices,
        TextFeatures,
    ),
    "span": Kind(
        SpanExample,
        SpanModel,
        featurize_spans,
        decode_spans,
        average_spans,
        SpanFeatures,
    ),
    "token_classifier": Kind(
        TokenExample,
        TokenClassifier,
        featurize_tokens,
        decode_tokens,
        average_logits,
        TokenFeatures,
    ),
}


def length_limits(task: Any, max_positions: int) -> dict[str, int]:
    """Return the changes to a `task` section that limit its sequences to `max_positions` pieces.

    There are none if it is within the limit. Windows over a context keep their relative overlap.
    """
    if task.seq_length <= max_positions:
        return {}
    changes = {"seq_length": max_positions}
    if hasattr(task, "doc_stride"):
        changes["doc_stride"] = max(1, task.doc_stride * max_positions // task.seq_length)
    return changes
