"""The base class of the `task` section of a fine-tuned run's config.json."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Self, TypeVar, cast

from albert_tf.runtime.bounds import Bounded
from albert_tf.runtime.errors import ConfigError, shortened


class TaskSettings(Bounded):
    """The settings of a kind of task: each kind has a frozen dataclass of them.

    Attributes:
      HEAD: the settings that a trained head depends on; a run with others needs a new head.
      FROM_DATA: the settings besides `kind` that follow from the data or are chosen in training.
      kind: the name of the kind.
      seq_length: the maximum pieces of a sequence, special pieces included.
      dropout: the rate before the head.
      pair: True if an example is two texts.
      long_texts: `cut` truncates what is longer than `seq_length`; `mean` and `max` pool windows.
      labels: the names of the logits, if they have any.
      logit_temperature: what the logits of the trained weights are divided by when they are loaded.
    """

    KEY = "`task.{}`"
    HEAD: ClassVar[tuple[str, ...]] = ()
    FROM_DATA: ClassVar[tuple[str, ...]] = ()

    kind: str
    seq_length: int
    dropout: float
    pair: bool = False
    long_texts: str = "cut"
    logit_temperature: float = 1.0
    labels: tuple[str, ...]

    @classmethod
    def has_labels(cls) -> bool:
        """Return True if `labels` names what the head predicts."""
        return "labels" in cls.HEAD

    @property
    def leaves_early(self) -> bool:
        """True if the pooled output of any layer can be classified, as in an early exit."""
        return True

    @property
    def reads_windows(self) -> bool:
        """True if a text may become several sequences."""
        return self.long_texts != "cut"

    def limits(self, max_positions: int) -> dict[str, int]:
        """Return the changes that limit the sequences to `max_positions` pieces, if any."""
        return {} if self.seq_length <= max_positions else {"seq_length": max_positions}

    def require_positions(self, max_positions: int, where: str) -> None:
        """Check that the model of `max_positions` can read the sequences.

        Raises:
          ConfigError: it cannot; `where` names the settings.
        """
        if self.limits(max_positions):
            raise ConfigError(
                f"{where}: `task.seq_length` must not exceed the model's `max_positions`. "
                f"Received: {self.seq_length}, {max_positions}. Set task.seq_length to at most "
                f"{max_positions}."
            )

    def replace(self, **changes: Any) -> Self:
        """Return the settings with changes."""
        return dataclasses.replace(cast(Any, self), **changes)

    def head(self) -> tuple:
        """Return what a trained head depends on: the kind and the settings in HEAD."""
        return self.kind, *(getattr(self, name) for name in self.HEAD)


SettingsT = TypeVar("SettingsT", bound=TaskSettings)


class WindowSettings(TaskSettings):
    """The settings of a kind that reads texts in windows of `seq_length` pieces.

    Attributes:
      doc_stride: the pieces between the starts of two windows.
    """

    doc_stride: int

    @property
    def reads_windows(self) -> bool:
        """True."""
        return True

    def limits(self, max_positions: int) -> dict[str, int]:
        """Return the changes; windows keep their relative overlap."""
        changes = super().limits(max_positions)
        if changes:
            changes["doc_stride"] = max(1, self.doc_stride * max_positions // self.seq_length)
        return changes


def require_labels(labels: Sequence[str], least: int) -> None:
    """Check the setting `task.labels`.

    Raises:
      ConfigError: there are fewer than `least` labels, two have the same name, or a name is no
        string, as those of a file are.
    """
    if isinstance(labels, str) or not all(isinstance(label, str) for label in labels):
        raise ConfigError(
            f"`task.labels` must be a tuple of strings. Received: {shortened(labels)}. Pass "
            "tuple(map(str, labels))."
        )
    if len(labels) < least or len(set(labels)) != len(labels):
        words = {1: "one", 2: "two"}[least]
        raise ConfigError(
            f"`task.labels` must be {words} or more different names. Received: {shortened(labels)}."
        )
