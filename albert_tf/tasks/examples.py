"""Examples of tasks: inputs and, where known, labels."""

import dataclasses
from typing import Any


class Example:
    """An example of a kind: each kind has a frozen dataclass of them.

    Attributes:
      id: the dataset's name for it, if it has one.
      label: the answer; None if unknown.
    """

    id: Any = ""
    label: Any = None

    @property
    def named_texts(self) -> tuple[tuple[str, str], ...]:
        """The texts, each with the name of its attribute."""
        raise NotImplementedError

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts."""
        return tuple(text for _, text in self.named_texts)

    @property
    def asked(self) -> tuple[str, ...]:
        """The texts by which a repeated example is recognized."""
        return self.texts

    @property
    def source(self) -> Any:
        """What examples that a split must keep together have in common: here, all texts."""
        return self.texts

    @property
    def is_known(self) -> bool:
        """True if the answer is known."""
        return self.label is not None


@dataclasses.dataclass(frozen=True)
class TextExample(Example):
    """A text or a pair of texts.

    >>> albert_tf.TextExample("a gripping story", label=1).label
    1
    >>> albert_tf.TextExample("A man sleeps.", "Nobody sleeps.").texts
    ('A man sleeps.', 'Nobody sleeps.')

    Attributes:
      first: the text, or the first one of a pair.
      second: the second text of a pair.
      label: the index of the label; for a regression the score; for a multi-label classifier the
        indices of the labels, which may be none; for an embedding the score of a pair, or a
        teacher's vector of a text. None if unknown.
      id: the dataset's name for it.
    """

    first: str
    second: str | None = None
    label: Any = None
    id: Any = dataclasses.field(default="", compare=False, kw_only=True)

    @property
    def named_texts(self) -> tuple[tuple[str, str], ...]:
        """The text, or both."""
        first = ("first", self.first)
        return (first,) if self.second is None else (first, ("second", self.second))

    @property
    def source(self) -> tuple[str, str | None]:
        """The text, or both."""
        return self.first, self.second
