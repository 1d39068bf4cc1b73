"""Examples of texts with labeled words or spans."""

import dataclasses
from typing import Any

from albert_tf.tasks.examples import Example


@dataclasses.dataclass(frozen=True)
class TokenExample(Example):
    """A text whose words or spans have labels, such as names.

    >>> example = albert_tf.TokenExample("Ann met Bo.", entities=((0, 3, "PER"), (8, 10, "PER")))
    >>> [example.text[start:end] for start, end, _ in example.entities]
    ['Ann', 'Bo']

    Attributes:
      text: the text.
      tokens: the characters [start, end) of each token, in order and without overlap, if the text
        is divided into tokens.
      entities: the characters [start, end) and the label of each labeled span, in order and without
        overlap; None if unknown.
      id: the dataset's name for the text.
    """

    text: str
    tokens: tuple[tuple[int, int], ...] | None = None
    entities: tuple[tuple[int, int, str], ...] | None = None
    id: Any = dataclasses.field(default="", compare=False)

    @property
    def named_texts(self) -> tuple[tuple[str, str], ...]:
        """The text."""
        return (("text", self.text),)

    @property
    def source(self) -> str:
        """The text."""
        return self.text

    @property
    def is_known(self) -> bool:
        """True if the spans are known, even if there are none."""
        return self.entities is not None
