"""Baselines without an encoder: features of words, with logistic or ridge regression."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.multi_label import chosen_labels, indicators
from finetuning.datasets import metrics
from finetuning.datasets.multi_label_metrics import best_thresholds
from finetuning.datasets.selection import split
from finetuning.datasets.task import Data, Prediction, Task
from finetuning.reporting import report, word_features

KINDS = ("classifier", "multi_label", "regressor", "token_classifier")
REGULARIZATIONS = (0.1, 1.0, 10.0, 100.0, 1000.0)  # C of logistic, alpha of ridge regression


def result_of(
    task: Task, data: Data, threshold_share: float = 0.0, threshold_per_label: bool = False
) -> dict[str, Any]:
    """Train on the training examples and return the scores on the first dev set, as result.json.

    The words of a text are weighted by TF-IDF with logarithmic counts. A pair of texts has the
    features of each, their products and absolute differences, and its cosine. Five-fold
    cross-validation on the training examples chooses the strength of the regularization, by the
    task's first metric (regression: by R^2). For several labels, there is a logistic regression for
    each, with scikit-learn's default strength. For token classification, see `word_features`.

    Args:
      task: of a kind in `KINDS`.
      data: its examples.
      threshold_share: as in `TrainingConfig`, for several labels. If 0, the threshold is 0.5.
      threshold_per_label: as in `TrainingConfig`.
    """
    (name, dev), *_ = data.dev.items()
    if task.kind == "token_classifier":
        predictions = word_features.predict(data, dev)
    elif task.kind == "multi_label":
        predictions = _predict_label_sets(data, dev, threshold_share, threshold_per_label)
    else:
        predictions = _predict(data, dev, task.metrics[0])
    scores = {"metric": task.metrics[0], **task.score(predictions, dev)}
    scores["train_examples"] = len(data.train)
    return scores | report.baselines_and_errors(task, data, name, predictions, task.metrics[0])


def _predict(data: Data, dev: Sequence[TextExample], metric: str) -> list[Prediction]:
    from sklearn.dummy import DummyClassifier, DummyRegressor
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.metrics import make_scorer
    from sklearn.model_selection import GridSearchCV, KFold

    train, test = _features(data.train, dev)
    labels = np.array([example.label for example in data.train])
    folds = KFold(max(2, min(5, len(labels))), shuffle=True, random_state=0)
    is_constant = len(set(labels.tolist())) == 1  # nothing to fit
    if data.task.kind == "regressor":
        search = GridSearchCV(Ridge(), {"alpha": REGULARIZATIONS}, cv=folds)
        model = DummyRegressor() if is_constant else search
        return [{"score": float(score)} for score in model.fit(train, labels).predict(test)]
    scorer = make_scorer(metrics.METRICS[metric])
    logistic, grid = LogisticRegression(max_iter=1000), {"C": REGULARIZATIONS}
    # A fold without one of two labels cannot be fitted: it is as bad for every C.
    search = GridSearchCV(logistic, grid, scoring=scorer, cv=folds, error_score=0.0)
    model = DummyClassifier() if is_constant else search
    model.fit(train, labels.astype(int))
    probabilities = np.zeros([len(dev), len(data.task.labels)])
    probabilities[:, model.classes_] = model.predict_proba(test)
    names = data.task.labels
    return [
        {"label": names[row.argmax()], "probabilities": dict(zip(names, row.tolist(), strict=True))}
        for row in probabilities
    ]


def _predict_label_sets(
    data: Data, dev: Sequence[TextExample], share: float, per_label: bool
) -> list[Prediction]:
    from sklearn.linear_model import LogisticRegression

    names = data.task.labels
    rest, held_out = split(data.train, share, "threshold")
    train, test = _features(rest, [*dev, *held_out])
    answers = indicators(rest, len(names))
    probabilities = np.tile(answers.mean(axis=0), [test.shape[0], 1])
    for i in np.flatnonzero(answers.any(axis=0) & ~answers.all(axis=0)):  # others are constant
        model = LogisticRegression(max_iter=1000).fit(train, answers[:, i])
        probabilities[:, i] = model.predict_proba(test)[:, 1]
    thresholds: tuple[float, ...] = ()
    if held_out:
        known = indicators(held_out, len(names))
        thresholds = best_thresholds(probabilities[len(dev) :], known, per_label)
    task = dataclasses.replace(data.task, thresholds=thresholds)
    return [
        {
            "labels": chosen_labels(row, task),
            "probabilities": dict(zip(names, row.tolist(), strict=True)),
        }
        for row in probabilities[: len(dev)]
    ]


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
