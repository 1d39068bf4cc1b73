"""Standard errors of scores, and of their differences to those of a baseline."""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.runtime.report_text import MIN_EXAMPLES
from albert_tf.training.clusters import error_of_ratio
from finetuning.datasets.dataset import Dataset, Prediction


def deviation(scores: Sequence[Mapping[str, float]], name: str) -> float:
    """Return the standard deviation of a score."""
    return float(np.std([score[name] for score in scores]))


def differences(
    scores: Iterable[Mapping[str, float]], others: Iterable[Mapping[str, float]]
) -> list[dict[str, float]]:
    """Return the differences of scores to those of a baseline, by name."""
    return [
        {name: score[name] - other[name] for name in score.keys() & other.keys()}
        for score, other in zip(scores, others, strict=True)
    ]


def scores_of_each(
    dataset: Dataset, predictions: Sequence[Prediction], examples: Sequence[Any]
) -> list[dict[str, float]]:
    """Return the scores of each prediction alone."""
    return [dataset.score([p], [e]) for p, e in zip(predictions, examples, strict=True)]


def errors_of_means(
    dataset: Dataset,
    predictions: Sequence[Prediction],
    examples: Sequence[Any],
    baseline: Sequence[Prediction] | None = None,
    scores_of: Callable[..., list[dict[str, float]]] = scores_of_each,
    cluster_of: Callable[[Any], Any] = operator.attrgetter("source"),
) -> dict[str, float]:
    """Return the standard errors of scores that are means over the examples.

    Examples of one source, such as the questions about a context, are a cluster: they may be
    answered well or badly together. With a `baseline`, they are those of the differences to its
    scores. There are none for fewer than `MIN_EXAMPLES` sources.
    """
    numbers: dict[Any, int] = {}
    sources = np.array([numbers.setdefault(cluster_of(e), len(numbers)) for e in examples])
    if len(numbers) < MIN_EXAMPLES:
        return {}

    scores = scores_of(dataset, predictions, examples)
    if baseline is not None:
        scores = differences(scores, scores_of(dataset, baseline, examples))
    values = {name: np.array([score[name] for score in scores]) for name in dataset.metrics}
    return {n: error_of_ratio(each, np.ones(len(each)), sources) for n, each in values.items()}
