"""Embeddings in fine-tuning."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.runtime.errors import ConfigError
from albert_tf.tasks.embedding.examples import ContrastExample, SearchExample
from albert_tf.tasks.embedding.model import EmbeddingSettings
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds import KINDS
from finetuning.datasets.dataset import Dataset, Prediction
from finetuning.datasets.tables.own_tables import PAIR, SINGLE
from finetuning.kinds.baselines import word_search
from finetuning.kinds.cards import mistakes
from finetuning.kinds.kind import FinetuningKind, text_of, tuples_of
from finetuning.kinds.standard_errors import errors_of_means
from finetuning.kinds.text_kind import shown

# Value of `task.loss` -> the training examples that it needs, in words.
_NEEDS = {
    "in_batch": "pairs of texts, or texts with negatives, without scores",
    "cosine": "pairs of texts with scores",
    "cosent": "pairs of texts with scores",
    "simcse": "single texts",
    "teacher_cosine": "single texts with a teacher's vectors",
    "teacher_squared": "single texts with a teacher's vectors",
}


class Embedding(FinetuningKind[EmbeddingSettings]):
    """A vector for each text."""

    kind = KINDS["embedding"]
    hub_task = "sentence-similarity"
    loader = "load_embedder"
    has_vectors = True

    def expected_line(self, task: EmbeddingSettings) -> str:
        """Return a description of a valid line."""
        return (
            "A line must be a text without tabs, two texts separated by a tab, or a JSON object "
            "with the key text, or text_a and text_b."
        )

    def of_cells(self, cells: Sequence[str], task: EmbeddingSettings) -> TextExample:
        """Return the text or the pair in the cells of a line."""
        if len(cells) > 2:
            raise ValueError
        return TextExample(*cells)

    def of_json(
        self, row: Mapping[str, Any], task: EmbeddingSettings, columns: Sequence[str]
    ) -> TextExample:
        """Return the example in an object with text, or with text_a and text_b."""
        names: Sequence[str] = PAIR if PAIR[0] in row or PAIR[1] in row else SINGLE
        if columns and columns[0] in row:
            names = columns
        return TextExample(*(text_of(row, name) for name in names))

    def card_sections(
        self,
        task: EmbeddingSettings,
        predictions: Sequence[Prediction],
        examples: Sequence[TextExample],
    ) -> list[str]:
        """Return the pairs whose rank by cosine is furthest from that by score, or bad searches."""
        if examples and isinstance(examples[0], SearchExample):
            return mistakes.worst(_searches(predictions, examples))
        return mistakes.worst(_pairs(predictions, examples))

    def by_name(self, example: dict[str, Any], task: EmbeddingSettings) -> dict[str, Any]:
        """Return the fields of an example, of a query without the corpus."""
        return {name: value for name, value in example.items() if name != "corpus"}

    def example_of(self, values: Mapping[str, Any], task: EmbeddingSettings) -> TextExample:
        """Return the example that `by_name` has turned into these fields, read from JSON."""
        classes = {"negatives": ContrastExample, "itself": SearchExample}
        example = next((cls for key, cls in classes.items() if key in values), TextExample)
        return example(**tuples_of(values))

    def standard_errors(
        self,
        dataset: Dataset,
        predictions: Sequence[Prediction],
        examples: Sequence[Any],
        baseline: Sequence[Prediction] | None = None,
    ) -> dict[str, float]:
        """Return the standard errors; for searches, whose scores are means over the queries."""
        if examples and isinstance(examples[0], SearchExample):
            return errors_of_means(dataset, predictions, examples, baseline)
        return super().standard_errors(dataset, predictions, examples, baseline)

    references = staticmethod(word_search.predictions)

    def check_training(self, config: Any, train: Features, replicas: int) -> None:
        """Check the examples, the number of negatives, the dropout, and the width of vectors.

        Raises:
          ConfigError: they do not fit `task.loss`.
        """
        task, model, batch = config.task, config.model, config.training.batch_size
        loss = f"`task.loss` {task.loss}"
        if "label" not in train.targets:
            raise ConfigError(
                f"{loss} needs {_NEEDS[task.loss]} as training examples. Received: others. Set "
                "another loss, or none: the default is one that the training part allows."
            )
        compares = task.is_contrastive or task.loss == "cosent"
        if compares and batch // replicas < 2:
            raise ConfigError(
                f"{loss} compares the examples of a batch, so `training.batch_size` must be at "
                f"least 2 for each replica. Received: {batch} for {replicas}."
            )
        if compares and len(train) < 2:
            raise ConfigError(
                f"{loss} compares the examples of a batch, so the training part must have at least "
                "2 examples. Received: 1. Add some."
            )
        dropout = (model.hidden_dropout, model.attention_dropout, task.dropout)
        if task.loss == "simcse" and not any(dropout):
            raise ConfigError(
                f"{loss} needs dropout, without which a text has the same vector twice. Received: "
                "0. Set model.hidden_dropout=0.1 and model.attention_dropout=0.1."
            )
        width = task.projection or model.hidden_size
        if task.loss.startswith("teacher") and train.targets["label"].shape[1] != width:
            raise ConfigError(
                f"{loss} needs vectors of the teacher's width, {train.targets['label'].shape[1]}. "
                f"Received: {width}. Set task.projection to the teacher's width."
            )


def _pairs(
    predictions: Sequence[Prediction], examples: Sequence[TextExample]
) -> list[mistakes.Row]:
    """Return the scored pairs, ranked by how far apart score and cosine rank them."""
    from scipy.stats import rankdata

    scored = [
        (example, prediction["score"])
        for prediction, example in zip(predictions, examples, strict=True)
        if "score" in prediction and example.label is not None
    ]
    ranks = [rankdata(values) for values in ([e.label for e, _ in scored], [s for _, s in scored])]
    return [
        mistakes.Row(shown(example), f"score {example.label:.4g}", f"cosine {score:.2f}", distance)
        for (example, score), distance in zip(scored, np.abs(ranks[0] - ranks[1]), strict=True)
    ]


def _searches(
    predictions: Sequence[Prediction], examples: Sequence[TextExample]
) -> list[mistakes.Row]:
    """Return the queries whose first document is not relevant, the latest relevant one first."""
    rows, texts = [], dict[str, str]()  # of the corpus, which all share
    for prediction, example in zip(predictions, examples, strict=True):
        assert isinstance(example, SearchExample)
        texts = texts or dict(zip(example.corpus.ids, example.corpus.texts, strict=True))
        relevant = [name for name, grade in example.label or () if grade > 0]
        names = [name for name, _ in prediction["ranking"]]
        if not relevant or not names or names[0] in relevant:
            continue
        place = next((i for i, name in enumerate(names) if name in relevant), len(names))
        rows.append(
            mistakes.Row(
                example.first, texts.get(relevant[0], relevant[0]), texts[names[0]], float(place)
            )
        )
    return rows
