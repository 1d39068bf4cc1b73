"""Decision thresholds, chosen on training examples that are held out of training.

`training.threshold_share` is the share of them. Some kinds of task have thresholds: `RULES`.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.tasks.multi_label.model import indicators
from finetuning.datasets import selection, squad
from finetuning.datasets.multi_label_metrics import (
    MIN_TEXTS,
    best_thresholds,
    has_own_threshold,
    probabilities_of,
)
from finetuning.datasets.task import Prediction
from finetuning.training.config import TrainingConfig

Examples = Sequence[Any]
Parts = tuple[list[Any], list[Any]]  # the rest, and the held-out examples


@dataclasses.dataclass(frozen=True)
class ThresholdRule:
    """How the thresholds of a kind of task are chosen.

    Attributes:
      key: the setting in the `task` section.
      hold_out: (training examples, share) -> the rest and the held-out examples.
      best: (predictions, held-out examples, their scores, `per_label`) -> the setting's best value.
      examples: a name for the examples in messages.
      metric: the score that chooses the best weights unless `training.metric` is set, since the
        thresholds are chosen after training. None: the dataset's first.
    """

    key: str
    hold_out: Callable[[Examples, float], Parts]
    best: Callable[[Sequence[Prediction], Examples, dict[str, float], bool], Any]
    examples: str
    metric: str | None = None

    def describe(self, value: Any, held_out: Examples, rest: int, per_label: bool) -> str:
        """Return a sentence on the value that was chosen while `rest` examples were trained on."""
        values = sorted(set(value)) if isinstance(value, tuple) else [value]
        shown = f"{values[0]:.4f}" + (f" to {values[-1]:.4f}" if len(values) > 1 else "")
        count, total = len(held_out), len(held_out) + rest
        text = (
            f"task.{self.key} {shown}, the best for {count:,} {self.examples} held out of training "
            f"({count / total:.1%} of {total:,})"
        )
        if per_label:
            own = has_own_threshold(indicators(held_out, len(value)))
            text += (
                f"; {np.count_nonzero(~own):,} of {len(own):,} labels are in fewer than "
                f"{MIN_TEXTS} of them and have the common threshold"
            )
        return f"{text}."


def _hold_out_texts(examples: Examples, share: float) -> Parts:
    rest, held_out = selection.split(examples, share, "threshold")
    if not all(any(example.label for example in part) for part in (rest, held_out)):
        raise InputError(
            "`training.threshold_share` must leave texts with labels in both parts. "
            f"Received: {share}, of {len(examples):,} texts. Pass another share."
        )
    return rest, held_out


def _best_for_labels(
    predictions: Sequence[Prediction], examples: Examples, scores: dict[str, float], per_label: bool
) -> tuple[float, ...]:
    probabilities: np.ndarray = probabilities_of(predictions)
    answers = indicators(examples, probabilities.shape[1])
    return best_thresholds(probabilities, answers, per_label)


RULES = {
    "span": ThresholdRule(
        "null_threshold",
        squad.hold_out,
        lambda predictions, examples, scores, per_label: scores["best_threshold"],
        "questions",
    ),
    "multi_label": ThresholdRule(
        "thresholds", _hold_out_texts, _best_for_labels, "texts", "average_precision"
    ),
}


def require_thresholds(task: Any, training: TrainingConfig) -> None:
    """Check that the task has the thresholds that the settings are about.

    Raises:
      ConfigError: it has none, or `threshold_per_label` is set without labels or held-out examples.
    """
    share, is_labels = training.threshold_share, task.kind == "multi_label"
    if share and not (is_labels or getattr(task, "answerable", False)):
        raise ConfigError(
            "`training.threshold_share` requires questions that may have no answer (squad2) or "
            f"texts with several labels (multi_label). Received: {share}, for a task of kind "
            f"{task.kind!r}."
        )
    if training.threshold_per_label and not (share and is_labels):
        raise ConfigError(
            "`training.threshold_per_label` requires texts with several labels (multi_label) and "
            f"`training.threshold_share`. Received: a task of kind {task.kind!r} and "
            f"{share}."
        )
