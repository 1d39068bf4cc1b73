"""Examples of questions with options."""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

from albert_tf.tasks.examples import Example


@dataclasses.dataclass(frozen=True)
class ChoiceExample(Example):
    """A question with the options to choose from (RACE).

    >>> options = ("Jane Austen", "George Eliot")
    >>> example = albert_tf.ChoiceExample("Who wrote Emma?", "", options, label=0)
    >>> example.options[example.label]
    'Jane Austen'

    Attributes:
      question: the text of the question.
      context: the text that the question is about; empty if there is none.
      options: the possible answers, two or more; their number may differ between questions.
      label: the index of the correct option; None if unknown.
      id: the dataset's name for the question.
    """

    question: str
    context: str
    options: Sequence[str]
    label: int | None = None
    id: Any = dataclasses.field(default="", compare=False, kw_only=True)

    @property
    def named_texts(self) -> tuple[tuple[str, str], ...]:
        """The question, the context and the options, if they are a list."""
        listed = self.options if isinstance(self.options, Collection) else ()
        options = tuple(("options", option) for option in listed)
        return ("question", self.question), ("context", self.context), *options

    @property
    def source(self) -> str:
        """The context, or without one the question."""
        return self.context or self.question
