"""What a task asks and, where it is known, the answer."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class TextExample:
    """A text, or a pair of texts.

    label: the number of the label, or of a regression the score; None where it is not known.
    """

    first: str
    second: str | None = None
    label: float | None = None


@dataclasses.dataclass(frozen=True)
class SpanExample:
    """A question about a context, in which the answer stands (SQuAD).

    answers: (first character in the context, text) of each annotator, the first one to train on.
    is_impossible: whether it is known that the context does not say (SQuAD 2.0).
    """

    question: str
    context: str
    id: str = ""
    answers: tuple[tuple[int, str], ...] = ()
    is_impossible: bool = False


@dataclasses.dataclass(frozen=True)
class ChoiceExample:
    """A question about a context, with the answers to choose from (RACE).

    label: the number of the right one; None where it is not known.
    """

    question: str
    context: str
    options: tuple[str, ...]
    label: int | None = None
