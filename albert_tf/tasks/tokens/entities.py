"""Decoding: from the tags of words to labeled spans of the text."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.tasks.probabilities import softmax
from albert_tf.tasks.tokens.examples import TokenExample
from albert_tf.tasks.tokens.features import TokenFeatures, first_words
from albert_tf.tasks.tokens.model import OUTSIDE, TokenSettings, begins_entity, label_of


def decode_tokens(
    outputs: np.ndarray,
    features: TokenFeatures,
    examples: Sequence[TokenExample],
    task: TokenSettings,
) -> list[dict[str, Any]]:
    """Return a dict for each example.

    `entities` are its labeled spans in order, each with `label`, `text`, its characters [`start`,
    `end`) and `score`, the mean probability of its words' tags. With the scheme `words` they are
    the words. An example with tokens also has `tags`, one a token; its entities consist of whole
    tokens, and a token has the tag of its first word.

    Args:
      outputs: float32 [N, S, tags].
      features: their windows.
      examples: the examples.
      task: the `task` section.
    """
    rows = softmax(features.of_words(outputs))
    tag, score = rows.argmax(axis=-1), rows.max(axis=-1)  # [U]
    bounds = features.word_bounds
    predictions: list[dict[str, Any]] = []
    for row, example in enumerate(examples):
        words = slice(bounds[row], bounds[row + 1])
        spans = np.stack([features.word_first[words], features.word_end[words]], axis=1)
        if example.tokens is None:
            entities = join_tags(example.text, spans, tag[words], score[words], task)
            predictions.append({"entities": entities})
            continue
        tags, scores = _of_tokens(example.tokens, spans[:, 0], tag[words], score[words])
        tokens = np.array(example.tokens, np.int64).reshape(-1, 2)
        names = [task.tags[index] if index >= 0 else "O" for index in tags.tolist()]
        entities = join_tags(example.text, tokens, tags, scores, task)
        predictions.append({"entities": entities, "tags": names})
    return predictions


def _of_tokens(
    tokens: Sequence[tuple[int, int]], first: np.ndarray, tag: np.ndarray, score: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the tag and score of each token's first word; -1 and 0 for a token without one."""
    word, has_word = first_words(tokens, first)
    tags: np.ndarray = np.where(has_word, np.append(tag, -1)[word], -1)
    return tags, np.where(has_word, np.append(score, 0.0)[word], 0.0)


def join_tags(
    text: str, spans: np.ndarray, tag: np.ndarray, score: np.ndarray, task: TokenSettings
) -> list[dict[str, Any]]:
    """Return the labeled spans that the words' tags mark, as in a prediction.

    Args:
      text: the text.
      spans: the characters [first, end) of the words, integers [U, 2].
      tag: the words' tags, integers [U]; negative: none.
      score: the tags' probabilities, [U].
      task: the `task` section.
    """
    if task.scheme == "words":
        label = tag
        is_begin = label >= 0
    else:
        label = label_of(tag)
        is_begin = begins_entity(tag, np.append(OUTSIDE, tag[:-1]))
    first = np.flatnonzero(is_begin)
    number = np.cumsum(is_begin) - 1  # the entity of each word in one
    inside = np.flatnonzero(label >= 0)
    counts = np.bincount(number[inside], minlength=len(first))
    scores = np.bincount(number[inside], score[inside], minlength=len(first)) / counts
    entities = []
    for begin, count, value in zip(first.tolist(), counts.tolist(), scores.tolist(), strict=True):
        start, end = int(spans[begin, 0]), int(spans[begin + count - 1, 1])
        entities.append(
            {
                "label": task.labels[label[begin]],
                "text": text[start:end],
                "start": start,
                "end": end,
                "score": value,
            }
        )
    return entities
