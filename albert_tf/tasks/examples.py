"""Examples of tasks: inputs and, where known, labels."""

import dataclasses
from typing import Any


class Example:
    """An example of a kind: each kind has a frozen dataclass of them.

    Attributes:
      id: the dataset's name for it, if it has one.
      label: the answer; None if unknown.
    """

    id: str = ""
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
        sorted indices of the labels, which may be none; for an embedding the score of a pair, or a
        teacher's vector of a text. None if unknown.
    """

    first: str
    second: str | None = None
    label: Any = None

    @property
    def named_texts(self) -> tuple[tuple[str, str], ...]:
        """The text, or both."""
        first = ("first", self.first)
        return (first,) if self.second is None else (first, ("second", self.second))

    @property
    def source(self) -> tuple[str, str | None]:
        """The text, or both."""
        return self.first, self.second


@dataclasses.dataclass(frozen=True)
class SpanExample(Example):
    """A question about a context (SQuAD).

    >>> context = "Emma is by Jane Austen."
    >>> albert_tf.SpanExample("Who wrote Emma?", context, answers=((11, "Jane Austen"),)).texts
    ('Who wrote Emma?', 'Emma is by Jane Austen.')

    Attributes:
      question: the text of the question.
      context: the text to answer it from.
      id: the dataset's name for the question.
      answers: (index of the first character in the context, text) from each annotator; training
        uses the first one.
      is_impossible: True if the context is known to contain no answer (SQuAD 2.0).
    """

    question: str
    context: str
    id: str = ""
    answers: tuple[tuple[int, str], ...] = ()
    is_impossible: bool = False

    @property
    def named_texts(self) -> tuple[tuple[str, str], ...]:
        """The question and the context."""
        return ("question", self.question), ("context", self.context)

    @property
    def source(self) -> str:
        """The context."""
        return self.context or self.question

    @property
    def is_known(self) -> bool:
        """True if there is an answer, or none is known to exist."""
        return bool(self.answers) or self.is_impossible


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
    """

    question: str
    context: str
    options: tuple[str, ...]
    label: int | None = None

    @property
    def named_texts(self) -> tuple[tuple[str, str], ...]:
        """The question, the context and the options."""
        options = tuple(("options", option) for option in self.options)
        return ("question", self.question), ("context", self.context), *options

    @property
    def source(self) -> str:
        """The context, or without one the question."""
        return self.context or self.question


@dataclasses.dataclass(frozen=True)
class TokenExample(Example):
    """A text whose words or spans have labels, such as names.

    >>> example = albert_tf.TokenExample("Ann met Bo.", entities=((0, 3, "PER"), (8, 10, "PER")))
    >>> [example.text[start:end] for start, end, _ in example.entities]
    ['Ann', 'Bo']

    Attributes:
      text: the text.
      tokens: the characters [start, end) of each token, if the text is divided into tokens.
      entities: the characters [start, end) and the label of each labeled span, in order and without
        overlap; None if unknown.
    """

    text: str
    tokens: tuple[tuple[int, int], ...] | None = None
    entities: tuple[tuple[int, int, str], ...] | None = None

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
        """True if the spans are known, of which there may be none."""
        return self.entities is not None
