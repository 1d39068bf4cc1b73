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

from albert_tf import info
from albert_tf.runtime import outputs
from albert_tf.runtime.standard_errors import MIN_EXAMPLES
from albert_tf.tasks.multi_label import indicators
from albert_tf.tasks.multiple_choice import option_letter
from finetuning.datasets.metrics import is_known
from finetuning.datasets.multi_label_metrics import at_thresholds
from finetuning.datasets.task import Data, Prediction, Task

_RESAMPLES = 200
# SQuAD 2.0's scores at the threshold that is best for the scored examples -> their metrics.
AT_BEST_THRESHOLD = {"best_f1": "f1", "exact_match_at_best_f1": "exact_match"}
# All values that are chosen on the scored examples, which makes them upper bounds.
UPPER_BOUNDS = (*AT_BEST_THRESHOLD, "best_exact_match", "best_threshold")


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
    best_step: int,
) -> dict[str, Any]:
    """Return the content of result.json.

    The scores of the first dev set are named after the metrics, those of others also after the set.

    Args:
      task: the task.
      data: its examples.
      parts: name of a dev set -> (scores, predictions).
      rows: the evaluations during training.
      deciding: the metric that chose the best evaluation.
      best_step: the step of that evaluation.
    """
    (name, (scores, predictions)), *others = parts.items()
    result: dict[str, Any] = {"metric": deciding, **scores}
    for other, (values, _) in others:
        result |= {f"{key}_{other}": value for key, value in values.items()}
    result |= baselines_and_errors(task, data, name, predictions, deciding)
    return result | {
        "steps": int(rows[-1]["step"]),
        "best_step": best_step,
        "evaluations": len(rows),
        "seconds": round(sum(row["seconds"] for row in rows), 1),
    }


def baselines_and_errors(
    task: Task, data: Data, name: str, predictions: Sequence[Prediction], deciding: str
) -> dict[str, Any]:
    """Return what puts the scores on the dev set `name` in perspective, as in result.json."""
    result: dict[str, Any] = {"dev_examples": len(data.dev[name])}
    if baselines := baselines_of(task, data, name):
        result |= {"baseline": baselines[deciding], "baselines": baselines}
    if errors := standard_errors(task, data.task.kind, predictions, data.dev[name]):
        result |= {"standard_error": errors[deciding], "standard_errors": errors}
    return result


def at_default_threshold(
    task: Task, section: Any, predictions: Sequence[Prediction], examples: Sequence[Any]
) -> dict[str, float]:
    """Return the metrics of label sets that depend on thresholds, with 0.5 for each label."""
    answers = at_thresholds(predictions, dataclasses.replace(section, thresholds=()))
    scores = task.score(answers, examples)
    return {name: scores[name] for name in task.metrics if name != "average_precision"}


def empty_note(
    kind: str, predictions: Sequence[Prediction], examples: Sequence[Any], steps: int
) -> str | None:
    """Return a note if a model predicts no label or entity at all, but the examples have some."""
    keys = {"multi_label": ("labels", "label"), "token_classifier": ("entities", "entities")}
    if kind not in keys:
        return None
    key, known = keys[kind]
    if any(each[key] for each in predictions) or not any(getattr(e, known) for e in examples):
        return None
    note = (
        f"The model predicts no {key} for any of the {len(examples):,} dev examples. Probably "
        f"{steps:,} steps are too few, or the learning rate is too low or too high: change "
        "training.epochs or training.learning_rate."
    )
    if kind == "multi_label":
        note += " Rare labels also need lower thresholds: training.threshold_share=0.1."
    return note


def constant_answer(data: Data) -> tuple[str, Prediction] | None:
    """Return the answer to give without reading the text, in words and as a prediction.

    Return None for SQuAD 1.1, whose questions have no answer in common.
    """
    kind, task = data.task.kind, data.task
    if kind == "span":
        empty: Prediction = {"answer": "", "n_best": [], "null_score": 0.0}
        return ("no answer to any question", empty) if task.answerable else None
    if kind == "token_classifier":
        return _constant_spans(data)
    if kind == "multi_label":
        return _constant_label_set(data)
    labels = [each.label for each in data.train]
    if kind == "regressor":
        mean = statistics.fmean(labels)
        words = f"always {mean:.4g}, the mean of the training labels"
        return f"{words}; a constant has no correlation, which counts as 0", {"score": mean}
    (most, _), *_ = collections.Counter(labels).most_common(1)
    if kind == "multiple_choice":
        words = f"always option {option_letter(int(most))}, the most frequent in training"
        return words, {"choice": most}
    name = task.labels[int(most)]
    probabilities = dict.fromkeys(task.labels, 0.0)
    words = f"always `{name}`, the most frequent label in training"
    return words, {"label": name, "probabilities": probabilities}


def _constant_label_set(data: Data) -> tuple[str, Prediction]:
    """Return the labels of at least half of the training examples, or else the most frequent one.

    The probability of each label is its share of the training examples.
    """
    labels = data.task.labels
    shares = indicators(data.train, len(labels)).mean(axis=0)
    chosen = [labels[i] for i in np.argsort(-shares, kind="stable") if shares[i] >= 0.5]
    words = "the labels of at least half of the training examples"
    if not chosen:
        chosen, words = [labels[int(shares.argmax())]], "the most frequent label in training"
    probabilities = dict(zip(labels, shares.tolist(), strict=True))
    names = " and ".join(f"`{name}`" for name in chosen)
    return f"always {names}, {words}", {"labels": chosen, "probabilities": probabilities}


def _constant_spans(data: Data) -> tuple[str, Prediction] | None:
    return None if data.task.scheme == "words" else ("no entity in any text", {"entities": []})


def baselines_of(task: Task, data: Data, name: str) -> dict[str, float]:
    """Return the main metrics of `constant_answer` on a dev set, none if there is none."""
    if (constant := constant_answer(data)) is None:
        return {}
    examples = data.dev[name]
    scores = task.score([constant[1]] * len(examples), examples)
    return {metric: scores[metric] for metric in task.metrics}


def standard_errors(
    task: Task, kind: str, predictions: Sequence[Prediction], examples: Sequence[Any]
) -> dict[str, float]:
    """Return the standard errors of the main metrics, from the number of dev examples.

    For an accuracy p over n examples, it is sqrt(p (1 - p) / n). For spans, whose scores lie
    between right and wrong, it is the standard deviation of their scores over sqrt(n), with the
    threshold fixed. Otherwise it is the standard deviation over resamples of the examples.

    There are none for fewer than `MIN_EXAMPLES` examples: ± is read as the width of a normal
    distribution, which is then a poor approximation.
    """
    count = len(examples)
    if count < MIN_EXAMPLES:
        return {}
    if kind == "span":
        return _span_errors(task, predictions, examples)
    errors = {}
    if set(task.metrics) != {"accuracy"}:
        rng = np.random.default_rng(0)
        resampled = []
        for _ in range(_RESAMPLES):
            rows = rng.integers(count, size=count)
            answers = [predictions[row] for row in rows]
            resampled.append(task.score(answers, [examples[row] for row in rows]))
        errors = {name: _deviation(resampled, name) for name in task.metrics}
    if "accuracy" in task.metrics:
        value = task.score(predictions, examples)["accuracy"]
        errors["accuracy"] = math.sqrt(value * (1 - value) / count)
    return errors


def _span_errors(
    task: Task, predictions: Sequence[Prediction], examples: Sequence[Any]
) -> dict[str, float]:
    def each(answers: Sequence[Prediction]) -> list[dict[str, float]]:
        return [task.score([a], [e]) for a, e in zip(answers, examples, strict=True)]

    given = best = each(predictions)
    if set(task.metrics) & set(AT_BEST_THRESHOLD):
        threshold = task.score(predictions, examples)["best_threshold"]
        best = each([answered(prediction, threshold) for prediction in predictions])
    return {
        name: _deviation(
            best if name in AT_BEST_THRESHOLD else given, AT_BEST_THRESHOLD.get(name, name)
        )
        / math.sqrt(len(examples))
        for name in task.metrics
    }


def _deviation(scores: Sequence[Mapping[str, float]], name: str) -> float:
    return float(np.std([each[name] for each in scores]))


def answered(prediction: Prediction, threshold: float) -> Prediction:
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
                known["label"] = _names(list(names), known["label"])
            row = {"example": known, "prediction": prediction}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _names(labels: Sequence[str], label: float | tuple[int, ...]) -> str | list[str]:
    """Return the name of an example's label, or those of its labels."""
    return [labels[i] for i in label] if isinstance(label, tuple) else labels[int(label)]


def scores_if_known(
    task: Task, predictions: Sequence[Prediction], examples: Sequence[Any]
) -> str | None:
    """Return the metrics in one line, or None if an example has no known answer."""
    if not all(map(is_known, examples)):
        return None
    scores = task.score(predictions, examples)
    shown = {name: f"{name} {value:.4f}" for name, value in scores.items()}
    bounds = [shown.pop(name) for name in UPPER_BOUNDS if name in shown]
    text = ", ".join(shown.values())
    return f"{text}; chosen on these same examples: {', '.join(bounds)}" if bounds else text


def by_metric(result: Mapping[str, Any], key: str) -> dict[str, float]:
    """Return the `baseline` or `standard_error` of each main metric.

    Results of older versions have it only for the deciding metric, and standard errors also of few
    examples.
    """
    if key == "standard_error" and result.get("dev_examples", 0) < MIN_EXAMPLES:
        return {}
    deciding = {result["metric"]: result[key]} if key in result else {}
    return result.get(f"{key}s", deciding)


def with_error(value: float, error: float | None) -> str:
    """Return a score with its standard error, or alone if there is none or it is 0."""
    return f"{value:.4f} ± {error:.4f}" if error else f"{value:.4f}"


def line(result: Mapping[str, Any]) -> str:
    """Return a result in one line."""
    metric = result["metric"]
    error = by_metric(result, "standard_error").get(metric)
    text = f"dev {metric} {with_error(result[metric], error)}"
    text += f" over {result['dev_examples']:,} examples"
    if "baseline" in result:
        text += f" (a constant answer, chosen in training: {result['baseline']:.4f})"
    precision = result.get("training_precision", "float32")
    if precision != "float32":
        text += f", computed in float32 (during training: {precision})"
    if "at_default_threshold" in result:
        pairs = result["at_default_threshold"].items()
        shown = (f"{name} {result[name]:.4f} (at 0.5: {value:.4f})" for name, value in pairs)
        text += f"; with the chosen thresholds {', '.join(shown)}"
    return text


def summarize(folder: str, results: Sequence[Mapping[str, Any]]) -> str:
    """Write median and spread of each score to `folder`/seeds.json, and return them as a table."""
    others = ("seconds", "baseline", "standard_error")
    names = [
        name
        for name, value in results[0].items()
        if all(isinstance(each.get(name), float) for each in results) and name not in others
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
