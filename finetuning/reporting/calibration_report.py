"""The calibration of a run's probabilities: errors, a plot, and a section of the card."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.runtime.plots import plot_reliability
from albert_tf.runtime.report_text import MIN_EXAMPLES
from albert_tf.runtime.run_dir import RunDir
from finetuning.datasets.dataset import Prediction
from finetuning.datasets.scores.calibration import BINS, calibration_error, reliability
from finetuning.kinds.registry import FINETUNING

ERROR, BEFORE = "calibration_error", "uncalibrated_error"
_PLOT = "reliability.png"


def write(
    run: RunDir,
    kind: str,
    predictions: Mapping[str, Sequence[Prediction]],
    examples: Sequence[Any],
) -> dict[str, float]:
    """Plot the reliability of predictions, and return their calibration errors by name.

    `predictions` are those of a part by `ERROR` and perhaps `BEFORE`. There are no errors if the
    kind has no probabilities, or the part fewer than `MIN_EXAMPLES` examples.
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
    return {name: calibration_error(values) for name, values in confidences.items()}


def sections(task: Any, result: Mapping[str, Any], held_out: bool) -> list[str]:
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
    return ["## Calibration", text, f"![reliability](plots/{_PLOT})"]
