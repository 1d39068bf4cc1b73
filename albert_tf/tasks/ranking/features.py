"""Queries with their candidates as sequences."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.features import PartFeatures, Sequences, pack
from albert_tf.tasks.ranking.examples import RankingExample, TrainingQuery
from albert_tf.tasks.ranking.model import RankingSettings
from albert_tf.text.tokenizer import Tokenizer

_SPECIAL = 3  # [CLS] and two [SEP]
_ABSENT = -1  # the grade where there is no candidate


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankingFeatures(PartFeatures):
    """The features of queries: a unit for each candidate or, to train on, for each query."""

    def widened(self, per_unit: int) -> "RankingFeatures":
        """Return the queries with more candidates, which are absent."""
        more = per_unit - self.per_unit
        is_candidate = np.tile(np.arange(per_unit) < self.per_unit, len(self))

        def padded(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {
                name: np.pad(row, [(0, 0), (0, more)], constant_values=_ABSENT)
                for name, row in values.items()
            }

        return dataclasses.replace(
            self,
            sequences=self.sequences.at_places(is_candidate),
            per_unit=per_unit,
            targets=padded(self.targets),
            hints=padded(self.hints),
        )

    def totals(self) -> dict[str, int]:
        """Return the numbers of candidates for `length_notes`."""
        lengths, cut = self.sequences.lengths, self.sequences.cut
        return {"examples": int(np.count_nonzero(lengths)), "cut": int(np.count_nonzero(cut))}

    def length_notes(self, totals: Mapping[str, int]) -> list[str]:
        """Return a note on candidates that are too long, if there are any."""
        if not totals["cut"]:
            return []
        return [
            f"{totals['cut']:,} of {totals['examples']:,} candidates are, with their query, longer "
            f"than task.seq_length={self.seq_length} and are truncated"
        ]


def featurize_queries(
    examples: Sequence[RankingExample], tokenizer: Tokenizer, task: RankingSettings
) -> RankingFeatures:
    """Build [CLS] query [SEP] candidate [SEP] for each candidate.

    A `TrainingQuery` is a unit with as many sequences as the query with the most candidates; those
    of missing candidates have no pieces. The target `label` [N, per_unit] is the grade divided by
    `task.largest_grade`, -1 where there is no candidate; the hint `grades` is the same.

    Otherwise each candidate is a unit, and `label` [N, 2] is the index of its query and the same
    grade. There are targets if every example has labels.

    Raises:
      InputError: a query has no candidates, or one with labels leaves no room for a candidate.
    """
    for row, example in enumerate(examples):
        if not example.candidates:
            raise InputError(
                f"Every query must have at least 1 candidate. Received in {_named(example, row)}: "
                "0. Add one, or remove the query."
            )
    sequences = _sequences(examples, tokenizer, task)
    counts = np.array([len(example.candidates) for example in examples], np.int64)
    query: np.ndarray = np.arange(len(examples), dtype=np.int32)
    labels = _labels(examples, task)
    if any(isinstance(example, TrainingQuery) for example in examples):
        per_unit = max(2, int(counts.max()))  # features of one would lose the axis
        is_candidate = np.arange(per_unit) < counts[:, None]
        features = RankingFeatures(
            sequences.at_places(is_candidate.ravel()),
            task.seq_length,
            per_unit=per_unit,
            example=query,
        )
        if labels is None:
            return features
        grades: np.ndarray = np.full(is_candidate.shape, _ABSENT, np.float32)
        grades[is_candidate] = labels
        return dataclasses.replace(features, targets={"label": grades}, hints={"grades": grades})
    query = np.repeat(query, counts)
    known = {} if labels is None else {"label": np.stack([query, labels], 1, dtype=np.float32)}
    return RankingFeatures(sequences, task.seq_length, known, example=query)


def _sequences(
    examples: Sequence[RankingExample], tokenizer: Tokenizer, task: RankingSettings
) -> Sequences:
    """Return the sequences of all candidates; each different text is tokenized once."""
    texts = list(dict.fromkeys(text for example in examples for text in example.texts))
    ids = dict(zip(texts, tokenizer.encode_batch(texts), strict=True))
    room = task.seq_length - _SPECIAL - 1
    for row, example in enumerate(examples):
        if example.label is not None and (size := len(ids[example.query])) > room:
            raise InputError(
                f"{_named(example, row)}: the query must have at most {room} pieces, which leaves "
                f"room for a candidate in task.seq_length={task.seq_length}. Received: {size} "
                f"pieces, {example.query[:80]!r}. Shorten or remove it, or set a larger "
                "task.seq_length, at most the model's max_positions."
            )
    first = [ids[example.query] for example in examples for _ in example.candidates]
    second = [ids[text] for example in examples for text in example.candidates]
    return pack(first, second, task.seq_length, tokenizer.special)


def _labels(examples: Sequence[RankingExample], task: RankingSettings) -> np.ndarray | None:
    """Return the labels of all candidates in [0, 1], float32 [M]; None if one is unknown."""
    grades: list[float] = []
    for example in examples:
        if example.label is None:
            return None
        grades += example.label
    return np.clip(np.array(grades, np.float32) / np.float32(task.largest_grade), 0, 1)


def _named(example: RankingExample, row: int) -> str:
    return example.location or f"example {row} ({example.query[:80]!r})"
