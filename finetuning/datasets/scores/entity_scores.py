"""Scores of labeled spans: F1 of exact matches, as conlleval and seqeval compute it."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from albert_tf.tasks.tokens.examples import TokenExample
from finetuning.datasets.scores.metrics import require_known


class Counts(NamedTuple):
    """The numbers of correct, predicted and true spans."""

    correct: int
    predicted: int
    true: int

    @property
    def precision(self) -> float:
        """The share of predicted spans that are correct; 0 if there are none."""
        return self.correct / max(1, self.predicted)

    @property
    def recall(self) -> float:
        """The share of true spans that are predicted; 0 if there are none."""
        return self.correct / max(1, self.true)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall; 0 if there are no spans."""
        return 2 * self.correct / max(1, self.predicted + self.true)


def score_entities(
    predictions: Sequence[Mapping[str, Any]], examples: Sequence[TokenExample]
) -> dict[str, float]:
    """Return `f1`, `precision` and `recall` over all spans.

    A span is correct if its characters and its label are. For words with a label each, recall is
    the accuracy, and so are the others if every token has a visible character.

    Raises:
      InputError: the labels of an example are unknown.
    """
    require_known(examples)
    every = counts_by_label(predictions, examples).values()
    counts = Counts(*(sum(column) for column in zip(*every, strict=True))) if every else None
    counts = counts or Counts(0, 0, 0)
    return {"f1": counts.f1, "precision": counts.precision, "recall": counts.recall}


def counts_by_label(
    predictions: Sequence[Mapping[str, Any]], examples: Sequence[TokenExample]
) -> dict[str, Counts]:
    """Return the counts of each label that occurs, by name."""
    correct, predicted, true = (collections.Counter[str]() for _ in range(3))
    for prediction, example in zip(predictions, examples, strict=True):
        given = {
            (entity["start"], entity["end"], entity["label"]) for entity in prediction["entities"]
        }
        known = set(example.entities or ())
        for counter, spans in ((correct, given & known), (predicted, given), (true, known)):
            counter.update(label for _, _, label in spans)
    return {
        label: Counts(correct[label], predicted[label], true[label])
        for label in sorted({*predicted, *true})
    }
