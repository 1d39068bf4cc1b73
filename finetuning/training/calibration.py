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

_RANGE = 0.2, 10.0  # of temperatures


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
    chosen = best_temperature(model, features.targets["label"], logits)
    model.task = model.task.replace(logit_temperature=chosen)
    model.divide_logits(chosen)


def best_temperature(model: TaskModel, labels: np.ndarray, logits: np.ndarray) -> float:
    """Return the number by which to divide the logits for the lowest loss of the task.

    Args:
      model: the model, whose loss is a log loss.
      labels: the targets of the units.
      logits: the model's outputs for the units.
    """
    from scipy.optimize import minimize_scalar

    loss = model.evaluation_losses()

    def mean_loss(log: float) -> float:
        scaled = (logits / np.exp(log)).astype(np.float32)
        return float(np.mean(loss.call(tf.constant(labels), tf.constant(scaled))))

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
    is_second = half[features.example] == 1
    decode, labels, answers = KINDS[model.task.kind].decode, features.targets["label"], []
    for choosing in (is_second, ~is_second):
        temperature = best_temperature(model, labels[choosing], logits[choosing])
        answers.append(decode(logits / temperature, features, examples, model.task))
    return [answers[half[row]][row] for row in range(len(examples))]
