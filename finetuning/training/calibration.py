"""The temperature that makes a trained model's probabilities honest (arXiv 1706.04599)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.runtime.report_text import MIN_EXAMPLES
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.task_model import TaskModel
from finetuning.datasets.dataset import Prediction
from finetuning.kinds.registry import FINETUNING

_RANGE = 0.01, 100.0  # of temperatures
_LARGEST = 1e4  # logit


def require_probabilities(kind: str, examples: Sequence[Any]) -> None:
    """Check that `training.calibrate` is for a kind, and that there are enough examples.

    Raises:
      ConfigError: the kind has no temperature.
      InputError: the examples are too few.
    """
    if not FINETUNING[kind].has_temperature:
        known = [name for name, tuned in FINETUNING.items() if tuned.has_temperature]
        raise ConfigError(
            f"`training.calibrate` must be false unless the kind is one of {', '.join(known)}. "
            f"Received: true, for kind {kind}. Leave it out."
        )
    if len(examples) < MIN_EXAMPLES:
        others = ""
        if FINETUNING[kind].thresholds:
            others = ", or held-out ones of `training.threshold_share`"
        raise InputError(
            f"`training.calibrate` needs at least {MIN_EXAMPLES} dev examples{others}. Received: "
            f"{len(examples)}. Add some, or leave it out."
        )


def calibrate(model: TaskModel, logits: np.ndarray, features: Any) -> None:
    """Set the temperature of a model that is best for the targets of `features`."""
    chosen = best_temperature(model, logits, features)
    if not 1.1 * _RANGE[0] < chosen < _RANGE[1] / 1.1:
        print(
            f"note: the temperature {chosen:g} is at the end of its range: the dev examples are "
            "too few, or the outputs say nothing of their labels."
        )
    model.task = model.task.replace(logit_temperature=chosen)
    model.divide_logits(chosen)


def best_temperature(
    model: TaskModel, logits: np.ndarray, features: Any, chosen: Any = slice(None)
) -> float:
    """Return the number by which to divide the logits for the lowest loss of the examples.

    Args:
      model: the model, whose loss is a log loss.
      logits: the model's outputs for the units.
      features: the units, with their targets.
      chosen: the rows of the examples that count.
    """
    from scipy.optimize import minimize_scalar

    loss, kind = model.evaluation_losses(), KINDS[model.task.kind]
    first_units = np.flatnonzero(np.diff(features.example, prepend=-1))
    labels = tf.constant(features.targets["label"][first_units][chosen])

    def mean_loss(log: float) -> float:
        of_texts = kind.text_logits(logits / np.exp(log), features, model.task)[chosen]
        finite = np.clip(of_texts, -_LARGEST, _LARGEST).astype(np.float32)
        return float(np.mean(loss.call(labels, tf.constant(finite))))

    minimum = minimize_scalar(
        mean_loss, bounds=np.log(_RANGE), method="bounded", options={"xatol": 1e-4}
    )
    return round(float(np.exp(minimum.x)), 4)


def halves(count: int) -> np.ndarray:
    """Return 0 or 1 for each example, as many of each, at random, since labels may alternate."""
    return np.random.default_rng(0).permutation(count) % 2


def cross_fitted(
    model: TaskModel, logits: np.ndarray, features: Any, examples: Sequence[Any]
) -> list[Prediction]:
    """Return predictions for examples that had no part in the choice of their temperature.

    One half of them, chosen at random, has the temperature that is best for the other, and the
    reverse.
    """
    half = halves(len(examples))
    decode, answers = KINDS[model.task.kind].decode, []
    for choosing in (half == 1, half == 0):
        temperature = best_temperature(model, logits, features, choosing)
        answers.append(decode(logits / temperature, features, examples, model.task))
    return [answers[half[row]][row] for row in range(len(examples))]
