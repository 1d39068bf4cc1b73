"""Exact match, F1 and the best null threshold, as the public evaluators define them."""

import collections
import re
import string
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from albert_tf.tasks.spans.examples import SpanExample
from finetuning.datasets.scores import cmrc_metrics

_ARTICLES = re.compile(r"\b(a|an|the)\b")
# SQuAD 2.0's scores at the threshold that is best for the scored examples -> their metrics.
AT_BEST_THRESHOLD = {"best_f1": "f1", "exact_match_at_best_f1": "exact_match"}
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII only


class Scorer(NamedTuple):
    """The functions with which an evaluator compares two answers.

    Attributes:
      plain: a text -> the value that must be equal for an exact match.
      units: a text -> the units that F1 counts.
      common: the units of two texts -> the number of units that they share.
    """

    plain: Callable[[str], object]
    units: Callable[[str], list[str]]
    common: Callable[[list[str], list[str]], int]


def normalized(text: str) -> list[str]:
    """Return the words to compare: in lower case, without punctuation and articles."""
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def _shared(prediction: list[str], reference: list[str]) -> int:
    return (collections.Counter(prediction) & collections.Counter(reference)).total()


SQUAD = Scorer(normalized, normalized, _shared)
CMRC = Scorer(cmrc_metrics.plain, cmrc_metrics.units, cmrc_metrics.longest_run)


def scorer_of(example: SpanExample) -> Scorer:
    """Return CMRC 2018's scorer if the context is mostly Chinese, else SQuAD's official one.

    The choice depends on the example alone, so that the scores of parts add up to that of the
    whole.
    """
    return CMRC if cmrc_metrics.is_chinese(example.context) else SQUAD


def score_answer(text: str, example: SpanExample, answerable: bool) -> tuple[float, float]:
    """Return exact match and F1 of an answer, each for the annotation that fits it best.

    With `answerable` (version 2.0), annotations without units are ignored; if none is left, the
    annotation is the empty answer. Two answers without units then agree.
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
    """Return the best mean score that a threshold on the null scores can give, and that threshold.

    As in SQuAD's official evaluator, the lowest of equally good thresholds is chosen, and questions
    with equal null scores are added one by one in their order, although no threshold separates
    them. If it is best to leave all questions unanswered, that evaluator always reports 0.0. If 0.0
    would answer some questions, this function instead returns a threshold below the lowest null
    score, which does give the best score.

    The threshold is chosen on the same examples that the score is reported on: the score is an
    upper bound, not a measurement.

    Args:
      scores: float [N], the scores of the answers if every question is answered.
      is_empty: bool [N], True if that answer is "" anyway.
      null_scores: float [N]; the answer is "" where they exceed the threshold.
      has_answer: bool [N], True if the question has an answer.
    """
    order = np.argsort(null_scores, kind="stable")
    gains = np.where(has_answer, scores, np.where(is_empty, 0.0, -1.0))[order]
    totals = np.cumsum([np.sum(~has_answer), *gains])  # of the first 0, 1, ... N answered
    best = int(np.argmax(totals))
    threshold = null_scores[order[best - 1]] if best else min(0.0, null_scores.min() - 1.0)
    return float(totals[best] / len(scores)), float(threshold)
