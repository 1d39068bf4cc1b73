"""A baseline for token classification: features of words, with logistic regression."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.tasks.examples import TokenExample
from albert_tf.tasks.tokens.entities import join_tags
from albert_tf.tasks.tokens.model import TokenTask
from finetuning.datasets.task import Data, Prediction

_WORD = re.compile(r"\w+|[^\w\s]")
_EDGE = "\n"  # the neighbor of the first and the last word


def predict(data: Data, dev: Sequence[TokenExample]) -> list[Prediction]:
    """Return predictions for `dev` by a model trained on the training examples.

    A word has as features its lower-case form, its first and last two and three characters, its
    shape (Xx9 for "Tokyo2"), and the forms and shapes of its neighbors. Where texts are not divided
    into tokens, words are runs of letters and digits and single other characters. scikit-learn's
    settings are the defaults; there is nothing random.
    """
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression

    task = data.task
    tags = np.concatenate([_tags(example, _spans(example), task) for example in data.train])
    features = [each for example in data.train for each in _features(example)]
    is_known = tags >= 0
    if len(set(tags[is_known])) < 2:  # nothing to learn
        return [{"entities": []} for _ in dev]
    vectorizer = DictVectorizer(dtype=np.float32)
    train = vectorizer.fit_transform(features)[np.flatnonzero(is_known)]
    model = LogisticRegression(max_iter=200, tol=1e-3).fit(train, tags[is_known])
    predictions = []
    for example in dev:
        spans, rows = _spans(example), _features(example)
        probabilities = np.zeros([len(spans), len(task.tags)])
        if rows:
            probabilities[:, model.classes_] = model.predict_proba(vectorizer.transform(rows))
        tag, score = probabilities.argmax(axis=1), probabilities.max(axis=1, initial=0.0)
        predictions.append({"entities": join_tags(example.text, spans, tag, score, task)})
    return predictions


def _spans(example: TokenExample) -> np.ndarray:
    """Return the characters [start, end) of the words, int64 [U, 2]."""
    tokens = example.tokens
    if tokens is None:
        tokens = tuple(match.span() for match in _WORD.finditer(example.text))
    return np.array(tokens, np.int64).reshape(-1, 2)


def _tags(example: TokenExample, spans: np.ndarray, task: TokenTask) -> np.ndarray:
    """Return the words' tags, int64 [U]; -1 for a word without a label if every word has one."""
    tags = np.full(len(spans), -1 if task.scheme == "words" else 0)
    for begin, end, label in example.entities or ():
        inside = np.flatnonzero((spans[:, 0] >= begin) & (spans[:, 0] < end))
        number = task.labels.index(label)
        tags[inside] = number if task.scheme == "words" else 2 + 2 * number
        if task.scheme != "words":
            tags[inside[:1]] = 1 + 2 * number
    return tags


def _features(example: TokenExample) -> list[dict[str, Any]]:
    words = [example.text[begin:end] for begin, end in _spans(example).tolist()]
    around = [_EDGE, *words, _EDGE]
    return [
        {
            "word": word.lower(),
            **{f"first {n}": word[:n].lower() for n in (2, 3)},
            **{f"last {n}": word[-n:].lower() for n in (2, 3)},
            "shape": _shape(word),
            "before": around[i].lower(),
            "after": around[i + 2].lower(),
            "shape before": _shape(around[i]),
            "shape after": _shape(around[i + 2]),
        }
        for i, word in enumerate(words)
    ]


def _shape(word: str) -> str:
    """Return the word with runs of upper-case and lower-case letters and digits as X, x and 9."""
    kinds = "".join(map(_kind, word))
    return re.sub(r"(.)\1+", r"\1", kinds)


def _kind(char: str) -> str:
    if char.isalpha():
        return "X" if char.isupper() else "x"
    return "9" if char.isdigit() else char
