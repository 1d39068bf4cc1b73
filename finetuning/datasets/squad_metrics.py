"""Exact match, F1 and the best null threshold, as the public evaluators have them."""

import collections
import re
import string
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from albert_tf.tasks.examples import SpanExample
from finetuning.datasets import cmrc_metrics

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)  # of ASCII alone


class Scorer(NamedTuple):
    """How an evaluator compares two answers.

    plain: a text -> what is equal for an exact match.
    units: a text -> the units that F1 counts.
    common: the units of two texts -> how many they share.
    """

    plain: Callable[[str], object]
    units: Callable[[str], list[str]]
    common: Callable[[list[str], list[str]], int]


def normalized(text: str) -> list[str]:
    """The words that are compared: lower case, without punctuation and articles."""
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def _shared(prediction: list[str], reference: list[str]) -> int:
    return (collections.Counter(prediction) & collections.Counter(reference)).total()


SQUAD = Scorer(normalized, normalized, _shared)
CMRC = Scorer(cmrc_metrics.plain, cmrc_metrics.units, cmrc_metrics.longest_run)


def scorer_of(example: SpanExample) -> Scorer:
    """CMRC 2018's where the context is mostly Chinese, else that of SQuAD's official evaluators.

    It depends on the example alone, so that the scores of parts add up to that of the whole.
    """
    return CMRC if cmrc_metrics.is_chinese(example.context) else SQUAD


def score_answer(text: str, example: SpanExample, answerable: bool) -> tuple[float, float]:
    """Exact match and F1 of an answer, each against the annotator that it fits best.

    With `answerable` (version 2.0), annotations without a unit do not count, none is the empty
    answer, and two answers without a unit agree.
    """
    scorer = scorer_of(example)
    answers = [answer for _, answer in example.answers]
    if answerable:
        answers = list(filter(scorer.units, answers)) or [""]
    prediction = scorer.units(text)
    exact = float(scorer.plain(text) in map(scorer.plain, answers))
    return exact, max(
        _f1(prediction, reference, scorer, answerable) for reference in map(scorer.units, answers)
    )


def _f1(prediction: list[str], reference: list[str], scorer: Scorer, answerable: bool) -> float:
    if answerable and not (prediction and reference):
        return float(prediction == reference)
    if not (common := scorer.common(prediction, reference)):
        return 0.0
    precision, recall = common / len(prediction), common / len(reference)
    return 2 * precision * recall / (precision + recall)


def best_threshold(
    scores: np.ndarray, is_empty: np.ndarray, null_scores: np.ndarray, has_answer: np.ndarray
) -> tuple[float, float]:
    """The best mean score that a threshold on the null scores can give, and that threshold.

    As SQuAD's official evaluator has them: of equally good thresholds the lowest; questions of
    equal null score are added one by one in their order, though no threshold parts them. Where
    never answering is best, that evaluator always names 0.0; if 0.0 would answer some questions,
    the threshold here is below the lowest null score, so that it gives the best.

    Chosen on the very examples that it is reported of: an upper bound, no measurement.

    Args:
      scores: float [N], of the answers when every question is answered.
      is_empty: bool [N], whether that answer is "" all the same.
      null_scores: float [N]; the answer is "" where they exceed the threshold.
      has_answer: bool [N].
    """
    order = np.argsort(null_scores, kind="stable")
    gains = np.where(has_answer, scores, np.where(is_empty, 0.0, -1.0))[order]
    totals = np.cumsum([np.sum(~has_answer), *gains])  # of the first 0, 1, ... N answered
    best = int(np.argmax(totals))
    threshold = null_scores[order[best - 1]] if best else min(0.0, null_scores.min() - 1.0)
    return float(totals[best] / len(scores)), float(threshold)
