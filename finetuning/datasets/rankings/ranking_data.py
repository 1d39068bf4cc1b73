"""Ranking of a user's own candidates: `train` and `dev` as lists or tables."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.ranking.examples import RankingExample, TrainingQuery
from albert_tf.tasks.ranking.model import RankingSettings
from finetuning.datasets.dataset import Data, Dataset, Prediction, Source, require_section
from finetuning.datasets.rankings.list_files import OPTIONAL, examples_of
from finetuning.datasets.scores import metrics, ranking_metrics
from finetuning.datasets.selection import limited, with_dev
from finetuning.datasets.tables.part_files import find
from finetuning.datasets.tables.table_files import PART_ENDS, open_table

# Queries of a batch: each has up to `task.num_candidates` sequences.
_RECIPE = {"training.batch_size": 8}


class RankingData(Dataset[RankingSettings]):
    """Queries with candidates whose labels are grades of relevance, 0 for those not relevant.

    A part is JSON lines with `query` and `candidates`, a list of objects with `text` and `label`,
    or a table with the columns `query`, `candidate` or `passage`, and `label`. Scores are over the
    queries that have both relevant and other candidates, as those over the "clean" questions of
    TREC-QA. Of equal scores, candidates of lower grades come first, so that the order of the files
    does not count.
    """

    kind: str = "ranking"
    metrics: tuple[str, ...] = ranking_metrics.OF_LISTS
    options = ("text_column", "label_column")
    name = "ranking"

    def read(self, source: Source) -> Data:
        """Read the training and dev examples, and print how many candidates the queries have."""
        parts = {"dev": lambda: self.examples(source, "dev")}
        train, dev = with_dev(source, self.examples(source, "train"), parts)
        train = limited(source, train)
        largest = max((grade for example in train for grade in example.label), default=0)
        if largest <= 0:
            raise InputError(
                "The training part must have a relevant candidate, with a label above 0. Received: "
                f"{len(train):,} queries without. Correct the labels."
            )
        for part, examples in {"train": train, **dev}.items():
            print(f"{part}: {_counts(examples)}")
        scored = {name: self.measured(examples) for name, examples in dev.items()}
        queries = [TrainingQuery(**vars(example)) for example in train]
        return Data(RankingSettings(largest_grade=largest), queries, scored, _RECIPE)

    def read_part(self, source: Source, part: str, task: RankingSettings) -> list[RankingExample]:
        """Read the queries of a part, which may have no labels."""
        require_section(self.name, task, kind=self.kind)
        return self.examples(source, part, to_predict=True)

    def examples(self, source: Source, part: str, to_predict: bool = False) -> list[RankingExample]:
        """Return the queries of a part as its files have them."""
        path = find(source.data_dir or "", [part + end for end in PART_ENDS])
        table = dataclasses.replace(
            open_table(path, optional=OPTIONAL),
            remedy="Rename the columns, or train with --label_column.",
        )
        return examples_of(table, source.reading, to_predict)

    def measured(self, examples: Sequence[RankingExample]) -> Sequence[RankingExample]:
        """Return the examples of a dev part.

        Raises:
          InputError: no query has both relevant and other candidates.
        """
        clean_rows(examples)
        return examples

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Any]) -> dict[str, float]:
        """Return the metrics over the queries that have both relevant and other candidates."""
        metrics.require_known(examples)
        rankings, relevant = [], []
        for row in clean_rows(examples):
            grades, scores = examples[row].label, predictions[row]["scores"]
            order = sorted(range(len(grades)), key=lambda i: (-scores[i], grades[i]))
            rankings.append([str(i) for i in order])
            relevant.append({str(i): grade for i, grade in enumerate(grades)})
        return ranking_metrics.score_rankings(rankings, relevant, self.metrics)

    def answer(self, prediction: Prediction) -> str:
        """Return the index of the best candidate."""
        return str(prediction["ranking"][0])


def clean_rows(examples: Sequence[RankingExample]) -> list[int]:
    """Return the rows of the queries that have both relevant and other candidates.

    Raises:
      InputError: there are none.
    """
    rows = [row for row, example in enumerate(examples) if example.is_clean]
    if not rows:
        raise InputError(
            "A part to score must have a query with both relevant candidates, of a label above 0, "
            f"and others, of label 0. Received: {len(examples):,} queries without. Add one."
        )
    return rows


def _counts(examples: Sequence[RankingExample]) -> str:
    sizes = [len(example.candidates) for example in examples]
    relevant = sum(grade > 0 for example in examples for grade in example.label or ())
    clean = sum(example.is_clean for example in examples)
    return (
        f"{len(examples):,} queries with {min(sizes):,} to {max(sizes):,} candidates, of which "
        f"{relevant:,} of {sum(sizes):,} are relevant; {clean:,} queries have both relevant and "
        "other candidates"
    )
