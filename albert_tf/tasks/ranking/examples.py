"""Examples of rankings."""

import dataclasses

from albert_tf.tasks.examples import Example


@dataclasses.dataclass(frozen=True)
class RankingExample(Example):
    """A query with candidates, all of which are ranked.

    Attributes:
      query: the text of the query.
      candidates: the texts to rank, one or more; their number may differ between queries.
      label: the grade of each candidate, 0 for one that is not relevant; None if unknown.
      id: the dataset's name for the query.
      location: where the dataset has it, such as `dev.jsonl:3`, for messages.
    """

    query: str
    candidates: tuple[str, ...]
    label: tuple[float, ...] | None = None
    id: str = ""
    location: str = dataclasses.field(default="", compare=False)

    @property
    def named_texts(self) -> tuple[tuple[str, str], ...]:
        """The query and the candidates."""
        return ("query", self.query), *(("candidates", text) for text in self.candidates)

    @property
    def asked(self) -> tuple[str, ...]:
        """The query, whatever its candidates are."""
        return (self.query,)

    @property
    def source(self) -> str:
        """The query."""
        return self.query

    @property
    def is_clean(self) -> bool:
        """True if the query has both relevant and other candidates, whose order can be scored."""
        grades = self.label or ()
        return any(grade > 0 for grade in grades) and not all(grade > 0 for grade in grades)


@dataclasses.dataclass(frozen=True)
class TrainingQuery(RankingExample):
    """A query to train on: a step reads at most `task.num_candidates` of its candidates."""
