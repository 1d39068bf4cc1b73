"""Rankings in fine-tuning."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.runtime.errors import ConfigError
from albert_tf.runtime.report_text import MIN_EXAMPLES
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.ranking.examples import RankingExample
from albert_tf.tasks.ranking.model import RankingSettings
from finetuning.datasets.dataset import Data, Dataset, Prediction
from finetuning.datasets.rankings.list_files import LIST, QUERY
from finetuning.kinds.baselines import word_search
from finetuning.kinds.cards import mistakes
from finetuning.kinds.kind import FinetuningKind, deviation, text_of


class Ranking(FinetuningKind[RankingSettings]):
    """A score for each candidate of a query."""

    kind = KINDS["ranking"]
    hub_task = "text-ranking"

    def expected_line(self, task: RankingSettings) -> str:
        """Return a description of a valid line."""
        return (
            f"A line must be a JSON object with {QUERY} and {LIST}, a list of texts or of objects "
            "with text, or the texts of a query and its candidates, separated by tabs."
        )

    def of_cells(self, cells: Sequence[str], task: RankingSettings) -> RankingExample:
        """Return the query and the candidates in the cells of a line."""
        query, *candidates = cells
        if not candidates:
            raise ValueError
        return RankingExample(query, tuple(candidates))

    def of_json(
        self, row: Mapping[str, Any], task: RankingSettings, columns: Sequence[str]
    ) -> RankingExample:
        """Return the example in an object with query and candidates; their labels are ignored.

        The query may also be under the run's own name, the first of `columns`.
        """
        name = columns[0] if columns and columns[0] in row else QUERY
        query, candidates = text_of(row, name), row.get(LIST)
        if LIST not in row:
            raise ValueError(f"the key `{LIST}` is missing")
        if not isinstance(candidates, list) or not candidates:
            raise ValueError(f"{LIST} must be a list of at least one text or object with text")
        items = [item if isinstance(item, dict) else {"text": item} for item in candidates]
        return RankingExample(query, tuple(text_of(item, "text") for item in items))

    def constant_answer(self, data: Data) -> None:
        """Return None: a constant orders nothing."""
        return None

    def card_sections(
        self,
        task: RankingSettings,
        predictions: Sequence[Prediction],
        examples: Sequence[RankingExample],
    ) -> list[str]:
        """Return the queries whose first candidate is not relevant, the worst first."""
        rows = []
        for prediction, example in zip(predictions, examples, strict=True):
            grades = example.label or ()
            if not example.is_clean or grades[prediction["ranking"][0]] > 0:
                continue
            order = [grades[index] for index in prediction["ranking"]]
            place = next(place for place, grade in enumerate(order) if grade > 0)
            right, given = prediction["ranking"][place], prediction["ranking"][0]
            texts = (f"{example.candidates[right]} (place {place + 1})", example.candidates[given])
            rows.append(mistakes.Row(example.query, *texts, float(place)))
        return mistakes.worst(rows)

    def is_table_row(self, example: Any) -> bool:
        """Return False: a query may be several rows."""
        return False

    def standard_errors(
        self, dataset: Dataset, predictions: Sequence[Prediction], examples: Sequence[Any]
    ) -> dict[str, float]:
        """Return the standard errors of the means over the queries that are scored."""
        rows = [
            dataset.score([prediction], [example])
            for prediction, example in zip(predictions, examples, strict=True)
            if example.is_clean
        ]
        if len(rows) < MIN_EXAMPLES:
            return {}
        return {name: deviation(rows, name) / math.sqrt(len(rows)) for name in dataset.metrics}

    def references(self, examples: Sequence[Any]) -> Mapping[str, Sequence[Prediction]]:
        """Return what words alone predict: BM25 and TF-IDF."""
        return word_search.of_candidates(examples)

    def check_training(self, config: Any, train: Features, replicas: int) -> None:
        """Check that the loss has what it compares.

        Raises:
          ConfigError: `task.loss` is `listwise`, and no query has relevant and other candidates.
        """
        grades = train.targets["label"]
        are_clean = (grades > 0).any(axis=1) & (grades == 0).any(axis=1)
        if config.task.loss == "listwise" and not are_clean.any():
            raise ConfigError(
                "`task.loss` listwise compares the candidates of a query, so a training query must "
                f"have relevant candidates and others. Received: {len(train):,} queries without. "
                "Add candidates, or set task.loss=pointwise."
            )
