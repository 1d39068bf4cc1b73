"""The calibration of a run's probabilities: errors, a plot, and a section of the card."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.runtime.plots import plot_reliability
from albert_tf.runtime.report_text import MIN_EXAMPLES, markdown_table
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.task_settings import TaskSettings
from finetuning.datasets.dataset import Prediction
from finetuning.datasets.scores.calibration import BINS, answered, calibration_error, reliability
from finetuning.kinds.registry import FINETUNING

ERROR, BEFORE = "calibration_error", "uncalibrated_error"
_PLOT = "reliability.png"
_LEAST = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_ANSWERED = "answered"  # the key of result.json


def write(
    run: RunDir,
    kind: str,
    predictions: Mapping[str, Sequence[Prediction]],
    examples: Sequence[Any],
) -> dict[str, Any]:
    """Plot the reliability of predictions, and return what result.json says of it.

    This is the calibration errors by name and, if an example has one answer, as `answered` what
    remains with some least probabilities. `predictions` are those of a part by `ERROR` and perhaps
    `BEFORE`. There is nothing if the kind has no probabilities, or the part fewer than
    `MIN_EXAMPLES` examples.
    """
    tuned = FINETUNING[kind]
    known = {name: tuned.confidences(values, examples) for name, values in predictions.items()}
    confidences = {name: value for name, value in known.items() if value is not None}
    if not confidences or len(examples) < MIN_EXAMPLES:
        return {}
    titles = {ERROR: "calibrated" if BEFORE in confidences else "as trained", BEFORE: "as trained"}
    curves = {titles[name]: reliability(values) for name, values in confidences.items()}
    os.makedirs(run.plots_path, exist_ok=True)
    plot_reliability(os.path.join(run.plots_path, _PLOT), curves)
    result: dict[str, Any] = {name: calibration_error(v) for name, v in confidences.items()}
    final = confidences[ERROR]
    if tuned.thresholds is None and len(final.probability) == len(examples):
        rows = [answered(final, least) for least in _LEAST]
        result[_ANSWERED] = [row._asdict() for row in rows if row.share]
    return result


def sections(task: TaskSettings, result: Mapping[str, Any], held_out: bool) -> list[str]:
    """Return the section of a card, none without a calibration error."""
    if ERROR not in result:
        return []
    text = (
        f"The expected calibration error of these examples, over {BINS} bins of equal width, is "
        f"{result[ERROR]:.4f}."
    )
    if BEFORE in result:
        chosen = "examples that were held out of training" if held_out else "them"
        text = (
            f"{text[:-1]}, and {result[BEFORE]:.4f} before the logits were divided by "
            f"task.logit_temperature {task.logit_temperature}, which was chosen on {chosen} for "
            "the lowest log loss."
        )
        if not held_out:
            text += " For the error, each half of them has the temperature of the other half."
    else:
        text += " `--set training.calibrate=true` chooses a temperature that lowers it."
    return ["## Calibration", text, f"![reliability](plots/{_PLOT})", *_threshold(result)]


def _threshold(result: Mapping[str, Any]) -> list[str]:
    """Return what a threshold for the probability costs."""
    rows = [
        (f"{row['least']:g}", *(f"{row[key]:.1%}" for key in ("share", "accuracy", "refused")))
        for row in result.get(_ANSWERED, ())
    ]
    if not rows:
        return []
    return [
        "A text may have none of the labels, and the model answers all the same. If answers below "
        "a probability are refused, this remains of these examples:",
        markdown_table(("least probability", "answered", "of these right", "right, refused"), rows),
    ]
