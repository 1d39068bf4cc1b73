"""Comparison of teacher, student and control: score, size and speed."""

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.runtime.report_text import markdown_table
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.predictor import load_predictor, predict
from finetuning.datasets.dataset import Dataset, Prediction
from finetuning.kinds.kind import FinetuningKind
from finetuning.kinds.registry import FINETUNING
from finetuning.reporting import report

_TIMED, _ROUNDS = 512, 5  # dev examples in a speed measurement, and measurements


def measured(path: str, dataset: Dataset, examples: Sequence[Any]) -> dict[str, Any]:
    """Return a run's scores, parameters, and examples/s in batches of 32 on one device."""
    predictor = load_predictor(path)
    kind = KINDS[predictor.task.kind]
    answers, _ = predictor.answer(examples, 32)
    sample = kind.featurize(examples[:_TIMED], predictor.tokenizer, predictor.task)
    seconds = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        predict(predictor.model, sample, 32)
        seconds.append(time.perf_counter() - start)
    return scored(dataset, FINETUNING[predictor.task.kind], answers, examples) | {
        "parameters": predictor.model.count_params(),
        "layers": predictor.model.encoder.config.num_layers,
        "examples_per_s": len(examples[:_TIMED]) / statistics.median(seconds),
    }


def scored(
    dataset: Dataset,
    kind: FinetuningKind,
    answers: Sequence[Prediction],
    examples: Sequence[Any],
) -> dict[str, Any]:
    """Return the scores of predictions with their standard errors."""
    return dataset.score(answers, examples) | {
        "metric": dataset.metrics[0],
        "standard_errors": kind.standard_errors(dataset, answers, examples),
        "dev_examples": len(examples),
    }


def table(results: Mapping[str, Mapping[str, Any]], metrics: Sequence[str]) -> str:
    """Return a table with a row for each run, such as teacher, student and control."""
    rows, of_teacher = [], results["teacher"].get("examples_per_s")
    for name, result in results.items():
        speed = result.get("examples_per_s")
        rows.append(
            (
                name,
                str(result.get("layers", "")),
                f"{result['parameters']:,}" if "parameters" in result else "",
                *(
                    report.with_error(result[metric], result["standard_errors"].get(metric))
                    for metric in metrics
                ),
                f"{speed:,.0f}" if speed else "",
                f"{speed / of_teacher:.1f}" if speed and of_teacher else "",
            )
        )
    count = results["teacher"]["dev_examples"]
    header = (f"{count:,} dev examples", "layers", "parameters", *metrics, "examples/s", "speed-up")
    return markdown_table(header, rows)
