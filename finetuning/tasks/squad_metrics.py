"""Exact match and F1 as SQuAD's official evaluators have them, of versions 1.1 and 2.0."""

import collections
import re
import string
from collections.abc import Sequence

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)  # of ASCII alone


def normalized(text: str) -> list[str]:
    """The words that are compared: lower case, without punctuation and articles."""
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def score_answer(text: str, answers: Sequence[str], answerable: bool) -> tuple[float, float]:
    """Exact match and F1 of an answer, each against the annotator that it fits best.

    Args:
      answers: of the annotators. With `answerable` (version 2.0), annotations without a word do not
        count, none is the empty answer, and two answers without a word agree.
    """
    given = normalized(text)
    wanted = [normalized(answer) for answer in answers]
    if answerable:
        wanted = list(filter(None, wanted)) or [[]]
    exact = float(given in wanted)
    return exact, max(_f1(given, words, answerable) for words in wanted)


def _f1(given: list[str], wanted: list[str], answerable: bool) -> float:
    if answerable and not (given and wanted):
        return float(given == wanted)
    same = (collections.Counter(given) & collections.Counter(wanted)).total()
    if not same:
        return 0.0
    precision, recall = same / len(given), same / len(wanted)
    return 2 * precision * recall / (precision + recall)


def best_threshold(
    scores: np.ndarray, is_empty: np.ndarray, null_scores: np.ndarray, has_answer: np.ndarray
) -> tuple[float, float]:
    """The best mean score that a threshold on the null scores can give, and that threshold.

    Chosen on the very examples that it is reported of: an upper bound, no measurement.

    Args:
      scores: float [N], of the answers when every question is answered.
      is_empty: bool [N], whether that answer is "" all the same.
      null_scores: float [N]; the answer is "" where they exceed the threshold.
      has_answer: bool [N].
    """
    order = np.argsort(null_scores, kind="stable")
    null_scores = null_scores[order]
    gains = np.where(has_answer, scores, np.where(is_empty, 0.0, -1.0))[order]
    totals = np.cumsum([np.sum(~has_answer), *gains])
    # Equal null scores are answered together.
    possible: np.ndarray = np.append(True, np.append(null_scores[1:] != null_scores[:-1], True))
    best = int(np.argmax(np.where(possible, totals, -np.inf)))
    threshold = null_scores[best - 1] if best else null_scores[0] - 1.0
    return float(totals[best] / len(scores)), float(threshold)
