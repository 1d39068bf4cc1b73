"""Baselines without an encoder: features of words, with logistic or ridge regression."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.multi_label.model import indicators
from finetuning.datasets.multi_label_metrics import (
    at_thresholds,
    best_thresholds,
    probabilities_of,
)
from finetuning.datasets.selection import split
from finetuning.datasets.task import Data, Task
from finetuning.reporting import report, word_features
from finetuning.reporting.regularization import (
    Examples,
    Predict,
    Predictions,
    best_strength,
    class_probabilities,
)


def result_of(
    task: Task,
    data: Data,
    threshold_share: float = 0.0,
    threshold_per_label: bool = False,
    on_dev: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Train on the training examples and return the scores on the first dev set, as result.json.

    The words of a text are weighted by TF-IDF with logarithmic counts. A pair of texts has the
    features of each, their products and absolute differences, and its cosine. For several labels,
    there is a logistic regression for each. For token classification, see `word_features`.
    Five-fold cross-validation on the training examples chooses the strength of the regularization
    by the task's first metric; for several labels with `threshold_share`, at the thresholds that
    are best for the same predictions. The result has it as `regularization`.

    Args:
      task: of a kind in `KINDS`.
      data: its examples.
      threshold_share: as in `TrainingConfig`, for several labels. If 0, the threshold is 0.5.
      threshold_per_label: as in `TrainingConfig`.
      on_dev: an earlier result, whose strength is taken instead of being chosen again.
    """
    (name, dev), *_ = data.dev.items()
    section = data.task
    train: Examples = data.train
    held_out: Examples = []
    if task.kind == "multi_label":
        section = dataclasses.replace(section, thresholds=())
        train, held_out = split(train, threshold_share, "threshold")
    prepare, metric = functools.partial(_PREPARE[task.kind], section), task.metrics[0]

    def tuned(predictions: Predictions, known: Predictions, examples: Examples) -> Predictions:
        """Return the predictions at the thresholds that are best for those of known examples."""
        if not held_out:
            return predictions
        answers = indicators(examples, len(section.labels))
        best = best_thresholds(probabilities_of(known), answers, threshold_per_label)
        return at_thresholds(predictions, dataclasses.replace(section, thresholds=best))

    def score(predictions: Predictions, examples: Examples) -> float:
        return task.score(tuned(predictions, predictions, examples), examples)[metric]

    strength = on_dev["regularization"] if on_dev else best_strength(prepare, train, score)
    every = prepare(train, [*dev, *held_out])(strength)
    predictions = tuned(every[: len(dev)], every[len(dev) :], held_out)
    scores = {"metric": metric, **task.score(predictions, dev)}
    scores |= {"train_examples": len(data.train), "regularization": strength}
    return scores | report.baselines_and_errors(task, data, name, predictions, metric)


def _labels(section: Any, train: Sequence[TextExample], test: Sequence[TextExample]) -> Predict:
    known, asked = _features(train, test)
    labels, names = np.array([example.label for example in train], int), section.labels

    def predict(strength: float) -> Predictions:
        rows = class_probabilities(known, labels, asked, strength, len(names))
        return [
            {
                "label": names[row.argmax()],
                "probabilities": dict(zip(names, row.tolist(), strict=True)),
            }
            for row in rows
        ]

    return predict


def _label_sets(section: Any, train: Sequence[TextExample], test: Sequence[TextExample]) -> Predict:
    known, asked = _features(train, test)
    answers, names = indicators(train, len(section.labels)), section.labels

    def predict(strength: float) -> Predictions:
        columns = [
            class_probabilities(known, answer.astype(int), asked, strength, 2)[:, 1]
            for answer in answers.T
        ]
        rows = np.stack(columns, 1).tolist()
        probabilities = [{"probabilities": dict(zip(names, row, strict=True))} for row in rows]
        return at_thresholds(probabilities, section)

    return predict


def _numbers(section: Any, train: Sequence[TextExample], test: Sequence[TextExample]) -> Predict:
    from sklearn.linear_model import Ridge

    known, asked = _features(train, test)
    labels = [example.label for example in train]

    def predict(strength: float) -> Predictions:
        scores = Ridge(strength).fit(known, labels).predict(asked)
        return [{"score": score} for score in scores.tolist()]

    return predict


_PREPARE: dict[str, Callable[[Any, Examples, Examples], Predict]] = {
    "classifier": _labels,
    "multi_label": _label_sets,
    "regressor": _numbers,
    "token_classifier": word_features.prepare,
}
KINDS = tuple(_PREPARE)


def _features(train: Sequence[TextExample], dev: Sequence[TextExample]) -> tuple[Any, Any]:
    """Return the features of both parts, sparse [examples, features]."""
    from scipy.sparse import csr_matrix, hstack

    texts = [text for example in train for text in (example.first, example.second) if text]
    vectors = tf_idf(texts)

    def features(examples: Sequence[TextExample]) -> Any:
        a = vectors([example.first for example in examples])
        if examples[0].second is None:
            return a
        b = vectors([example.second for example in examples])
        products = a.multiply(b).tocsr()
        cosine = csr_matrix(products.sum(axis=1))
        return hstack([a, b, products, abs(a - b), cosine]).tocsr()

    return features(train), features(dev)


def tf_idf(training: Sequence[str]) -> Callable[[Sequence[str]], Any]:
    """Return a function from texts to sparse TF-IDF vectors [texts, words] of length 1.

    Counts are logarithmic; words and their rarity are those of the training texts.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    tokens = r"\w+|[^\w\s]"  # words of any length, and punctuation marks
    return TfidfVectorizer(sublinear_tf=True, token_pattern=tokens).fit(training).transform
