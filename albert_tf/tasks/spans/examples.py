"""Examples of questions about a context."""

import dataclasses

from albert_tf.tasks.examples import Example


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
