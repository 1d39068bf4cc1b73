"""The results of a run: scores with their spread, predictions, and a summary over seeds."""

import dataclasses
import hashlib
import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.runtime.errors import InputError, shortened
from albert_tf.runtime.files import outputs
from albert_tf.runtime.files.json_text import json_object
from albert_tf.runtime.files.text_files import lines_of
from albert_tf.runtime.report_text import markdown_table
from albert_tf.tasks.task_settings import TaskSettings
from finetuning.datasets.dataset import Data, Dataset, Prediction
from finetuning.kinds.registry import FINETUNING


def fingerprint(data: Data) -> str:
    """Return 16 hex digits that change with any example, and with the part that it is in."""
    digest = hashlib.sha256()
    for name, part in {"train": data.train, **data.dev}.items():
        digest.update(f"{name} {len(part)}".encode())
        for example in part:
            fields = [field.name for field in dataclasses.fields(example) if field.compare]
            digest.update(repr(tuple(getattr(example, name) for name in fields)).encode())
    return digest.hexdigest()[:16]


def result_of(
    dataset: Dataset,
    data: Data,
    parts: Mapping[str, tuple[dict[str, float], list[Prediction]]],
    rows: Sequence[Mapping[str, float]],
    deciding: str,
    best_step: int,
) -> dict[str, Any]:
    """Return the content of result.json.

    The scores of the first dev set are named after the metrics, those of others also after the set.

    Args:
      dataset: the dataset.
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
    result |= baselines_and_errors(dataset, data, name, predictions, deciding)
    return result | {
        "steps": int(rows[-1]["step"]),
        "best_step": best_step,
        "evaluations": len(rows),
        "seconds": round(sum(row["seconds"] for row in rows), 1),
    }


def baselines_and_errors(
    dataset: Dataset, data: Data, name: str, predictions: Sequence[Prediction], deciding: str
) -> dict[str, Any]:
    """Return what puts the scores on the dev set `name` in perspective, as in result.json."""
    result: dict[str, Any] = {"dev_examples": len(data.dev[name])}
    if baselines := baselines_of(dataset, data, name):
        result |= {"baseline": baselines[deciding], "baselines": baselines}
    kind = FINETUNING[data.task.kind]
    if references := kind.references(data.dev[name]):
        scored = (
            (reference, dataset.score(answers, data.dev[name]))
            for reference, answers in references.items()
        )
        result["references"] = {
            reference: {metric: scores[metric] for metric in dataset.metrics}
            for reference, scores in scored
        }
    if errors := kind.standard_errors(dataset, predictions, data.dev[name]):
        result |= {"standard_error": errors[deciding], "standard_errors": errors}
    return result


def empty_note(
    kind: str, predictions: Sequence[Prediction], examples: Sequence[Any], steps: int
) -> str | None:
    """Return a note if a model predicts no label or entity at all, but the examples have some."""
    tuned = FINETUNING[kind]
    if tuned.label_keys is None:
        return None
    key, known = tuned.label_keys
    predicts, has_some = (
        any(p[key] for p in predictions),
        any(getattr(e, known) for e in examples),
    )
    if predicts or not has_some:
        return None
    return (
        f"The model predicts no {key} for any of the {len(examples):,} dev examples. Probably "
        f"{steps:,} steps are too few, or the learning rate is too low or too high: change "
        f"training.epochs or training.learning_rate.{tuned.empty_remedy}"
    )


def at_default(
    dataset: Dataset, task: TaskSettings, predictions: Sequence[Prediction], examples: Sequence[Any]
) -> dict[str, float] | None:
    """Return the metrics that depend on thresholds at their defaults, None if these have none."""
    thresholds = FINETUNING[task.kind].thresholds
    if thresholds is None or thresholds.default is None:
        return None
    answers = thresholds.applied(predictions, task.replace(**thresholds.default))
    scores = dataset.score(answers, examples)
    return {name: scores[name] for name in dataset.metrics if name != thresholds.metric}


def baselines_of(dataset: Dataset, data: Data, name: str) -> dict[str, float]:
    """Return the main metrics of the constant answer on a dev set, none if there is none."""
    if (constant := FINETUNING[data.task.kind].constant_answer(data)) is None:
        return {}
    examples = data.dev[name]
    scores = dataset.score([constant[1]] * len(examples), examples)
    return {metric: scores[metric] for metric in dataset.metrics}


def write_predictions(
    path: str, task: TaskSettings, predictions: Sequence[Prediction], examples: Sequence[Any]
) -> None:
    """Write one JSON object per line: the example, its label by name, and the prediction."""
    kind = FINETUNING[task.kind]
    with outputs.new_text(path) as file:
        for example, prediction in zip(examples, predictions, strict=True):
            known = kind.by_name(dataclasses.asdict(example), task)
            if known.get("id") == "":
                del known["id"]
            row = {"example": known, "prediction": prediction}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def read_predictions(path: str, task: TaskSettings) -> tuple[list[Any], list[Prediction]]:
    """Return the examples and the predictions in a file that `write_predictions` wrote.

    Raises:
      InputError: a line is not such an example with a prediction.
    """
    kind, examples, predictions = FINETUNING[task.kind], [], []
    for number, line in lines_of(path):
        row = json_object(line, f"{path}:{number}", allow_nan=True)
        try:
            examples.append(kind.example_of(row["example"], task))
            predictions.append({**row["prediction"]})
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"{path}:{number} must be an example and its prediction as fine-tuning writes "
                f"them. Received: {shortened(row)}. Restore the file, or train the run again."
            ) from None
    return examples, predictions


def upper_bounds(kind: str, scores: Mapping[str, Any]) -> list[str]:
    """Return the names of the scores that are chosen on the scored examples."""
    thresholds = FINETUNING[kind].thresholds
    return [name for name in thresholds.upper_bounds if name in scores] if thresholds else []


def scores_if_known(
    dataset: Dataset, predictions: Sequence[Prediction], examples: Sequence[Any]
) -> str | None:
    """Return the metrics in one line, or None if an example has no known answer."""
    if not all(example.is_known for example in examples):
        return None
    scores = dataset.score(predictions, examples)
    shown = {name: f"{name} {value:.4f}" for name, value in scores.items()}
    bounds = [shown.pop(name) for name in upper_bounds(dataset.kind, scores)]
    text = ", ".join(shown.values())
    return f"{text}; chosen on these same examples: {', '.join(bounds)}" if bounds else text


def with_error(value: float, error: float | None) -> str:
    """Return a score with its standard error, or alone if there is none or it is 0."""
    return f"{value:.4f} ± {error:.4f}" if error else f"{value:.4f}"


def line(kind: str, result: Mapping[str, Any]) -> str:
    """Return the result of a model of a kind in one line."""
    metric = result["metric"]
    error = result.get("standard_errors", {}).get(metric)
    text = f"dev {metric} {with_error(result[metric], error)}"
    text += f" over {result['dev_examples']:,} examples"
    if (evaluations := result.get("evaluations", 1)) > 1:
        text += f", the best of {evaluations:,} evaluations on them"
    if "baseline" in result:
        text += f" (a constant answer, chosen in training: {result['baseline']:.4f})"
    references = {"before training": result["at_start"]} if "at_start" in result else {}
    if references := references | result.get("references", {}):
        shown = (f"{name} {scores[metric]:.4f}" for name, scores in references.items())
        text += f" ({', '.join(shown)})"
    precision = result.get("training_precision", "float32")
    if precision != "float32":
        text += f", computed in float32 (during training: {precision})"
    if (thresholds := FINETUNING[kind].thresholds) and "at_default_threshold" in result:
        at_default = (
            f"{name} {result[name]:.4f} (at {thresholds.default_label}: {value:.4f})"
            for name, value in result["at_default_threshold"].items()
        )
        text += f"; with the chosen thresholds {', '.join(at_default)}"
    return text


def summarize(folder: str, results: Sequence[Mapping[str, Any]]) -> str:
    """Write median and spread of each score to `folder`/seeds.json, and return them as a table."""
    others = ("seconds", "baseline", "standard_error")
    names = [
        name
        for name, value in results[0].items()
        if all(isinstance(result.get(name), float) for result in results) and name not in others
    ]
    summary = {}
    for name in names:
        values = [result[name] for result in results]
        if not all(map(math.isfinite, values)):
            summary[name] = dict.fromkeys(("median", "mean", "stdev", "min", "max"), math.nan)
            continue
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
    return markdown_table((f"{len(results)} seeds", *summary[names[0]]), rows)
