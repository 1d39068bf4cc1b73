"""A baseline for token classification: features of words, with logistic regression."""

import functools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.tasks.tokens.entities import join_tags
from albert_tf.tasks.tokens.examples import TokenExample
from albert_tf.tasks.tokens.model import IGNORED, OUTSIDE, TokenSettings, tag_of
from albert_tf.text.words import word
from finetuning.kinds.baselines.regularization import Predict, Predictions, class_probabilities

_EDGE = "\n"  # the neighbor of the first and the last word


def prepare(
    task: TokenSettings, train: Sequence[TokenExample], test: Sequence[TokenExample]
) -> Predict:
    """Return a function from the strength of the regularization to the predictions for `test`.

    A word has as features its lower-case form, its first and last two and three characters, its
    shape (Xx9 for "Tokyo2"), and the forms and shapes of its neighbors. Where texts are not divided
    into tokens, words are those of `albert_tf.text.words` and single other characters.
    """
    from sklearn.feature_extraction import DictVectorizer

    tags = np.concatenate([_tags(example, _spans(example), task) for example in train])
    is_known = tags >= 0
    if not is_known.any():  # no word at all
        return lambda strength: [{"entities": []} for _ in test]
    vectorizer = DictVectorizer(dtype=np.float32)
    known = vectorizer.fit_transform([word for example in train for word in _features(example)])
    asked = vectorizer.transform([word for example in test for word in _features(example)] or [{}])
    known, tags = known[np.flatnonzero(is_known)], tags[is_known]
    spans = [_spans(example) for example in test]
    ends = np.cumsum([len(words) for words in spans])

    def predict(strength: float) -> Predictions:
        rows = class_probabilities(known, tags, asked, strength, len(task.tags))[: ends[-1]]
        tag, score = (np.split(values, ends[:-1]) for values in (rows.argmax(1), rows.max(1)))
        return [
            {"entities": join_tags(example.text, words, tags, scores, task)}
            for example, words, tags, scores in zip(test, spans, tag, score, strict=True)
        ]

    return predict


@functools.cache
def _tokens() -> re.Pattern[str]:
    return re.compile(rf"{word().pattern}|\S")


def _spans(example: TokenExample) -> np.ndarray:
    """Return the characters [start, end) of the words, int64 [U, 2]."""
    tokens = example.tokens
    if tokens is None:
        tokens = tuple(match.span() for match in _tokens().finditer(example.text))
    return np.array(tokens, np.int64).reshape(-1, 2)


def _tags(example: TokenExample, spans: np.ndarray, task: TokenSettings) -> np.ndarray:
    """Return the words' tags, int64 [U]; -1 for a word without a label if every word has one."""
    tags = np.full(len(spans), IGNORED if task.scheme == "words" else OUTSIDE)
    for begin, end, label in example.entities or ():
        inside = np.flatnonzero((spans[:, 0] >= begin) & (spans[:, 0] < end))
        number = task.labels.index(label)
        if task.scheme == "words":
            tags[inside] = number
        else:
            tags[inside] = tag_of(number, np.arange(len(inside)) == 0)
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
