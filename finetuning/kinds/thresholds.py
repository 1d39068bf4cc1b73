"""Decision thresholds, chosen on training examples that are held out of training.

`training.threshold_share` is the share of them.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic

from albert_tf.runtime.bounds import NUMBER, Bound
from albert_tf.tasks.task_settings import SettingsT
from finetuning.datasets.dataset import Prediction

Examples = Sequence[Any]
Parts = tuple[list[Any], list[Any]]  # the rest, and the held-out examples


class Thresholds(abc.ABC, Generic[SettingsT]):
    """The thresholds of a kind of task.

    Attributes:
      key: the setting in the `task` section.
      flag: the option of `finetuning.predict` that sets it, a number.
      help: the option's description.
      bound: the option's bound.
      needs: the examples that have it, for messages.
      examples: a name for the examples in messages.
      metric: the score that chooses the best weights unless `training.metric` is set, since the
        thresholds are chosen after training. None: the dataset's first.
      default: the settings before a choice, with which results are compared. None: without.
      default_label: these settings in a table.
      per_label: True if each label may have one.
      best_value: the score that is the best value for the scored examples, if it is one.
      at_best: scores at that value -> their metrics.
      upper_bounds: all scores that are chosen on the scored examples, which makes them such.
    """

    key: ClassVar[str]
    flag: ClassVar[str]
    help: ClassVar[str]
    bound: ClassVar[Bound] = NUMBER
    needs: ClassVar[str]
    examples: ClassVar[str]
    metric: ClassVar[str | None] = None
    default: ClassVar[Mapping[str, Any] | None] = None
    default_label: ClassVar[str] = ""
    per_label: ClassVar[bool] = False
    best_value: ClassVar[str] = ""
    at_best: ClassVar[Mapping[str, str]] = {}
    upper_bounds: ClassVar[Sequence[str]] = ()

    @abc.abstractmethod
    def hold_out(self, examples: Examples, share: float) -> Parts:
        """Return the rest and the held-out examples.

        Raises:
          InputError: a part would lack examples that the choice needs.
        """

    @abc.abstractmethod
    def best(
        self,
        predictions: Sequence[Prediction],
        examples: Examples,
        scores: Mapping[str, float],
        per_label: bool,
    ) -> Any:
        """Return the setting's best value for held-out examples with these scores."""

    def at(self, task: SettingsT, value: float) -> SettingsT:
        """Return the settings with a value of the flag."""
        return task.replace(**{self.key: value})

    @abc.abstractmethod
    def applied(self, predictions: Sequence[Prediction], task: SettingsT) -> list[Prediction]:
        """Return the predictions at the thresholds of the `task` section."""

    def common(self, task: SettingsT) -> SettingsT:
        """Return the settings at the thresholds to which `comparable` moves the outputs."""
        return task

    def comparable(self, outputs: Any, task: SettingsT) -> Any:
        """Return the outputs of a model with such settings as they are at the common thresholds."""
        return outputs

    def averaged(self, task: SettingsT, members: Sequence[SettingsT]) -> SettingsT:
        """Return such settings with the mean of the members' thresholds."""
        return task

    def describe(self, value: Any, held_out: Examples, rest: int, per_label: bool) -> str:
        """Return a sentence on the value that was chosen while `rest` examples were trained on."""
        values = sorted(set(value)) if isinstance(value, tuple) else [value]
        shown = f"{values[0]:.4f}" + (f" to {values[-1]:.4f}" if len(values) > 1 else "")
        count, total = len(held_out), len(held_out) + rest
        return (
            f"task.{self.key} {shown}, the best for {count:,} {self.examples} held out of training "
            f"({count / total:.1%} of {total:,})."
        )
