"""Decoding: from the likeliest spans of windows to answers, which are parts of the context."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.tasks.probabilities import softmax
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.spans.features import SpanFeatures
from albert_tf.tasks.spans.heads import NEVER, may_answer
from albert_tf.tasks.spans.model import SpanSettings
from albert_tf.text.words import visible_part

Outputs = Mapping[str, np.ndarray]


def decode_spans(
    outputs: Outputs, features: SpanFeatures, examples: Sequence[SpanExample], task: SpanSettings
) -> list[dict[str, Any]]:
    """Return a dict for each example.

    The keys are:

      `answer`: the text as it appears in the context, without invisible characters at its ends;
        "" if there is none.
      `score`: its probability among the n best.
      `start`: the index of its first character in the context; None if there is none.
      `n_best`: up to `task.n_best` different answers, best first, each with its `text`, `start`,
        `logit` (the head's score, see `spans.heads`) and `probability`, the softmax over the logits
        of these answers.
      `null_score`, with `task.answerable`: the logit of there being no answer, the lowest over the
        example's windows. Above `task.null_threshold`, the answer is "".
    """
    spans = _spans(outputs, features, task)
    nulls = _null_scores(outputs["null"], features, len(examples)) if task.answerable else None
    predictions = []
    for row, example in enumerate(examples):
        best = _n_best(example.context, spans, row, task.n_best)
        prediction = {"answer": "", "score": 0.0, "start": None, "n_best": best}
        if nulls is not None:
            prediction["null_score"] = float(nulls[row])
        if best and (nulls is None or nulls[row] <= task.null_threshold):
            top = best[0]
            prediction |= {
                "answer": top["text"],
                "score": top["probability"],
                "start": top["start"],
            }
        predictions.append(prediction)
    return predictions


def average_spans(members: Sequence[Outputs]) -> dict[str, np.ndarray]:
    """Return the outputs of an ensemble, which have a fixed width like those of its members.

    A span's score is the mean over the members that propose it. The null scores become
    [N, members]; decoding takes the lowest of each member over the windows, then the mean over the
    members (google-research/albert, `accumulate_predictions_v1` and `_v2`).
    """
    start, end, score = (
        np.concatenate([member[name] for member in members], axis=1)
        for name in ("start", "end", "score")
    )
    rows = np.broadcast_to(np.arange(len(start))[:, None], start.shape)
    spans = np.stack([rows.ravel(), start.ravel(), end.ravel()])
    _, index, group, count = np.unique(
        spans, axis=1, return_index=True, return_inverse=True, return_counts=True
    )
    merged = np.full(score.size, NEVER, np.float32)
    merged[index] = np.bincount(group.ravel(), score.ravel()) / count
    result = {"start": start, "end": end, "score": merged.reshape(score.shape)}
    if "null" in members[0]:
        result["null"] = np.stack([member["null"] for member in members], axis=1)
    return result


def _spans(outputs: Outputs, features: SpanFeatures, task: SpanSettings) -> tuple[np.ndarray, ...]:
    """Return the valid spans by example, best first: bounds, first and last characters, scores.

    The spans of example i are those from bounds[i] to bounds[i + 1]; bounds are int64
    [examples + 1].
    """
    start, end, score = outputs["start"], outputs["end"], outputs["score"]
    sequences = features.sequences
    window, column = np.nonzero(
        may_answer(
            *(start, end, score),
            (features.owned_from[:, None], features.owned_to[:, None]),
            sequences.lengths[:, None] - 1,
            task.max_answer_length,
        )
    )
    score, example = score[window, column], features.example[window]
    base = features.piece[window] - sequences.first_lengths[window]
    first = features.first[base + start[window, column]]
    reach = features.reach[base + end[window, column]]
    order = np.lexsort([-score, example])
    count = int(features.example[-1]) + 1 if len(features.example) else 0
    bounds: np.ndarray = np.append(0, np.cumsum(np.bincount(example, minlength=count)))
    return bounds, first[order], reach[order], score[order]


def _n_best(
    context: str, spans: tuple[np.ndarray, ...], row: int, count: int
) -> list[dict[str, Any]]:
    bounds, first, reach, score = spans
    answers: dict[str, tuple[int, float]] = {}
    for index in range(bounds[row], bounds[row + 1]):
        before, text = visible_part(context[first[index] : reach[index] + 1])
        if text and text not in answers:
            answers[text] = int(first[index]) + before, float(score[index])
            if len(answers) == count:
                break
    if not answers:
        return []
    probabilities = softmax(np.array([value for _, value in answers.values()]))
    return [
        {"text": text, "start": start, "probability": float(probability), "logit": value}
        for (text, (start, value)), probability in zip(answers.items(), probabilities, strict=True)
    ]


def _null_scores(null: np.ndarray, features: SpanFeatures, count: int) -> np.ndarray:
    """Return float [examples] from [windows] or, for several models, from [windows, models]."""
    first = np.searchsorted(features.example, np.arange(count))
    lowest = np.minimum.reduceat(null.reshape(len(features.example), -1), first, axis=0)
    return lowest.mean(axis=1)
