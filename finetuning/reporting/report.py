"""The results of a run: scores with their spread, predictions, and a summary over seeds."""

import collections
import dataclasses
import hashlib
import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.stats

from albert_tf import info
from albert_tf.runtime import outputs
from finetuning.datasets.metrics import is_known
from finetuning.datasets.task import Data, Prediction, Task

_RESAMPLES = 200
# SQuAD 2.0's scores at the threshold chosen on the dev examples -> their metrics.
AT_BEST_THRESHOLD = {"best_f1": "f1", "exact_match_at_best_f1": "exact_match"}


def fingerprint(data: Data) -> str:
    """Return 16 hex digits that change with any example."""
    digest = hashlib.sha256()
    for part in (data.train, *data.dev.values()):
        for example in part:
            digest.update(repr(dataclasses.astuple(example)).encode())
    return digest.hexdigest()[:16]


def result_of(
    task: Task,
    data: Data,
    parts: Mapping[str, tuple[dict[str, float], list[Prediction]]],
    rows: Sequence[Mapping[str, float]],
    deciding: str,
) -> dict[str, Any]:
    """Return the content of result.json.

    The scores of the first dev set are named after the metrics, those of others also after the set.

    Args:
      task: the task.
      data: its examples.
      parts: name of a dev set -> (scores, predictions).
      rows: the evaluations during training.
      deciding: the metric that chose the best evaluation.
    """
    (name, (scores, predictions)), *others = parts.items()
    metric, examples = deciding, data.dev[name]
    result: dict[str, Any] = {"metric": metric, **scores}
    for other, (values, _) in others:
        result |= {f"{key}_{other}": value for key, value in values.items()}
    baseline = baseline_of(task, data, name, metric)
    best = max(rows, key=lambda row: row[f"dev/{metric}"])
    return result | {
        **({} if baseline is None else {"baseline": baseline}),
        "standard_error": standard_error(task, data.task.kind, metric, predictions, examples),
        "dev_examples": len(examples),
        "steps": int(rows[-1]["step"]),
        "best_step": int(best["step"]),
        "seconds": round(sum(row["seconds"] for row in rows), 1),
    }


def baseline_of(task: Task, data: Data, name: str, metric: str) -> float | None:
    """Return the score of always giving the same answer, or None if there is no such answer.

    The same answer is the training part's most frequent label or choice, or for SQuAD 2.0 the empty
    answer. Regression and SQuAD 1.1 have none.
    """
    kind, examples = data.task.kind, data.dev[name]
    if kind == "regressor" or (kind == "span" and not data.task.answerable):
        return None
    always: Prediction = {"answer": "", "n_best": [], "null_score": 0.0}
    if kind != "span":
        (most, _), *_ = collections.Counter(each.label for each in data.train).most_common(1)
        always = {"choice": most}
    if kind == "classifier":
        labels = data.task.labels
        always = {"label": labels[int(most)], "probabilities": dict.fromkeys(labels, 0.0)}
    return task.score([always] * len(examples), examples)[metric]


def standard_error(
    task: Task,
    kind: str,
    metric: str,
    predictions: Sequence[Prediction],
    examples: Sequence[Any],
) -> float:
    """Return the standard error of a metric, from the number of dev examples.

    For an accuracy p over n examples, it is sqrt(p (1 - p) / n). For spans, whose scores lie
    between right and wrong, it is the standard deviation of their scores over sqrt(n), with the
    threshold fixed. Otherwise it is the standard deviation over resamples of the examples.
    """
    if metric == "accuracy":
        value = task.score(predictions, examples)[metric]
        return math.sqrt(value * (1 - value) / len(examples))
    if kind == "span":
        if metric in AT_BEST_THRESHOLD:
            threshold = task.score(predictions, examples)["best_threshold"]
            predictions = [_answered(prediction, threshold) for prediction in predictions]
        metric = AT_BEST_THRESHOLD.get(metric, metric)
        pairs = zip(predictions, examples, strict=True)
        each = [task.score([answer], [example])[metric] for answer, example in pairs]
        return float(np.std(each)) / math.sqrt(len(each))

    def resampled(rows: np.ndarray) -> float:
        scores = task.score([predictions[row] for row in rows], [examples[row] for row in rows])
        return scores[metric]

    rows = np.arange(len(examples))
    return scipy.stats.bootstrap(
        (rows,), resampled, n_resamples=_RESAMPLES, vectorized=False, method="basic", rng=0
    ).standard_error


def _answered(prediction: Prediction, threshold: float) -> Prediction:
    """Return the prediction that another threshold on the null score would give."""
    is_answered = prediction["n_best"] and prediction["null_score"] <= threshold
    return {**prediction, "answer": prediction["n_best"][0]["text"] if is_answered else ""}


def write_predictions(
    path: str, predictions: Sequence[Prediction], examples: Sequence[Any]
) -> None:
    """Write one JSON object per line: the example, its label by name, and the prediction."""
    with outputs.new_file(path) as partial, open(partial, "w", encoding="utf-8") as file:
        for example, prediction in zip(examples, predictions, strict=True):
            known = dataclasses.asdict(example)
            names = prediction.get("probabilities")
            if isinstance(names, dict) and known["label"] is not None:
                known["label"] = list(names)[int(known["label"])]
            row = {"example": known, "prediction": prediction}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def scores_if_known(
    task: Task, predictions: Sequence[Prediction], examples: Sequence[Any]
) -> str | None:
    """Return the metrics in one line, or None if an example has no known answer."""
    if not all(map(is_known, examples)):
        return None
    scores = task.score(predictions, examples)
    return ", ".join(f"{name} {value:.4f}" for name, value in scores.items())


def line(result: Mapping[str, Any]) -> str:
    """Return a result in one line."""
    metric = result["metric"]
    text = f"dev {metric} {result[metric]:.4f} ± {result['standard_error']:.4f}"
    text += f" over {result['dev_examples']:,} examples"
    if "baseline" in result:
        text += f" (always the same answer: {result['baseline']:.4f})"
    return text


def summarize(folder: str, results: Sequence[Mapping[str, Any]]) -> str:
    """Write median and spread of each score to `folder`/seeds.json, and return them as a table."""
    others = ("seconds", "baseline", "standard_error")
    names = [
        name
        for name, value in results[0].items()
        if isinstance(value, float) and name not in others
    ]
    summary = {}
    for name in names:
        values = [result[name] for result in results]
        summary[name] = {
            "median": statistics.median(values),
            "mean": statistics.mean(values),
            "stdev": statistics.stdev(values),
            "min": min(values),
            "max": max(values),
        }
    every = {name: {**summary[name], "seeds": [r[name] for r in results]} for name in names}
    outputs.write_json(os.path.join(folder, "seeds.json"), every)
    rows = [
        (name, *(f"{value:.4f}" for value in figures.values())) for name, figures in summary.items()
    ]
    return info.markdown_table((f"{len(results)} seeds", *summary[names[0]]), rows)
