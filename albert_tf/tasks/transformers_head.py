"""What Hugging Face's transformers has for a kind of task: a class, and labels in its config."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeAlias

import numpy as np

from albert_tf.tasks.task_settings import SettingsT

Weights: TypeAlias = Mapping[str, np.ndarray]  # by our names
MOST_LABELS = 2**20


class TransformersHead(Generic[SettingsT]):
    """The class of transformers that corresponds to a kind, and how their files state it.

    Args:
      architecture: the name of the class.
      layer: its name of the head's dense layer.
      problem_type: its `problem_type`, if several kinds have one class.
      label_counts: the numbers of labels that the kind may have; empty: its config has none.
      our_layer: our name of that layer.
      per_label: settings with a value for each label.
      has_pooler: True if the class has a pooler.
      has_names: False if the logits have no names of their own.
      open_settings: settings that a folder made elsewhere does not state and a user may set.
      config_keys: keys of config.json that state the kind, where `problem_type` and the number of
        labels are those of another kind too.
    """

    note: ClassVar[str] = ""  # on what reading a model of the class may lose

    def __init__(
        self,
        architecture: str,
        layer: str,
        problem_type: str | None = None,
        label_counts: range = range(0),
        our_layer: str = "head",
        per_label: Sequence[str] = (),
        has_pooler: bool = True,
        has_names: bool = True,
        open_settings: Sequence[str] = ("seq_length",),
        config_keys: Mapping[str, Any] | None = None,
    ) -> None:
        self.architecture, self.problem_type = architecture, problem_type
        self.label_counts, self.has_pooler, self.has_names = label_counts, has_pooler, has_names
        self.layer, self.our_layer, self.per_label = layer, our_layer, per_label
        self.open_settings, self.config_keys = open_settings, config_keys or {}

    def is_in(self, folder: str) -> bool:
        """Return True if a folder whose config.json names the class holds a model of the kind."""
        return True

    def settings_in(self, folder: str) -> dict[str, Any]:
        """Return the settings that other files of a folder state."""
        return {}

    def tensors_in(self, folder: str) -> Weights:
        """Return the tensors in other files of a folder, under their names."""
        return {}

    def files(self, task: SettingsT, tensors: dict[str, np.ndarray]) -> dict[str, bytes]:
        """Return other files of a folder by path; tensors in them leave `tensors`."""
        return {}

    def refusal(self, task: SettingsT) -> str | None:
        """Return why the class cannot hold a model with these settings, or None if it can."""
        return None

    def labels(self, task: SettingsT) -> tuple[str, ...]:
        """Return the names of the logits; only called if the config has labels."""
        return task.labels if self.has_names else ("LABEL_0",)  # their default name

    def settings_of(self, labels: tuple[str, ...]) -> dict[str, Any]:
        """Return the settings that the names of the logits, in any order, determine.

        Raises:
          ValueError: the names are impossible; the message says which are possible.
        """
        return {"labels": labels} if self.has_names else {}

    def to_theirs(self, weights: Weights, task: SettingsT) -> Weights:
        """Return the weights, under our names, as their class uses them."""
        return weights

    def to_ours(self, weights: Weights, task: SettingsT) -> Weights:
        """Invert `to_theirs`."""
        return weights
