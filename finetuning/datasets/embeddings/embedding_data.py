"""Training data of embeddings, with a dev part that is a search or has scored pairs."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files.compression import format_of
from albert_tf.tasks.embedding.examples import ContrastExample, Corpus, SearchExample
from albert_tf.tasks.embedding.model import EmbeddingSettings
from albert_tf.tasks.examples import TextExample
from finetuning.datasets.dataset import Data, Dataset, Prediction, Reading, Source, require_section
from finetuning.datasets.embeddings import beir
from finetuning.datasets.embeddings.pair_tables import GLUE_PAIR, LIST, examples_of, is_optional
from finetuning.datasets.embeddings.teacher_vectors import with_vectors
from finetuning.datasets.scores import metrics, pair_metrics, ranking_metrics
from finetuning.datasets.selection import Connected, limited, with_dev
from finetuning.datasets.tables.own_tables import with_ids
from finetuning.datasets.tables.part_files import find
from finetuning.datasets.tables.table_files import PART_ENDS, open_table

# Dropout for reading a text twice (SimCSE), if nothing else is set.
_SIMCSE = {"model.hidden_dropout": 0.1, "model.attention_dropout": 0.1}


class EmbeddingData(Dataset[EmbeddingSettings]):
    """Texts, pairs, texts with negatives, or scored pairs to train on, and searches as dev part.

    A part is a table (see `examples_of` of `pair_tables`), or qrels/PART.tsv of a folder in BEIR's
    layout. In a dev part that is a table of pairs, the first texts are queries for their second
    texts among those of all pairs and the negatives. Beside the training texts there may be a
    teacher's vectors (`teacher_vectors`).

    Tables are quoted as csv.writer does, except those of GLUE, which have its columns sentence1 and
    sentence2 in a .tsv: in them, quotes are text.
    """

    kind: str = "embedding"
    metrics: tuple[str, ...] = ranking_metrics.METRICS
    options = ("text_column", "label_column")
    name = "embedding"

    def read(self, source: Source) -> Data:
        """Read the training and dev examples."""
        parts = {"dev": lambda: self.examples(source, "dev")}
        train, dev = with_dev(source, self.examples(source, "train"), parts)
        train = limited(source, train)
        task = _section_of(train)
        measured = {name: self.measured(examples) for name, examples in dev.items()}
        return Data(task, train, measured, _SIMCSE if task.loss == "simcse" else {})

    def read_part(
        self, source: Source, part: str, task: EmbeddingSettings
    ) -> Sequence[TextExample]:
        """Read the examples of a part; of the training part as they are trained on."""
        require_section(self.name, task, kind=self.kind)
        examples = self.examples(source, part, to_predict=True)
        is_scored = part != "train" and self._has_answers(examples)
        return self.measured(examples) if is_scored else examples

    def _has_answers(self, examples: Sequence[TextExample]) -> bool:
        """Return True for examples with which vectors are scored, False for some to predict."""
        return any(example.second is not None for example in examples)

    def examples(
        self, source: Source, part: str, to_predict: bool = False
    ) -> Sequence[TextExample]:
        """Return the examples of a part as its files have them; those to predict may be empty."""
        folder = source.data_dir or ""
        if beir.has_part(folder, part):
            searches = beir.read_searches(folder, part)
            return Connected(_pairs_of(searches)) if part == "train" else searches
        path = find(folder, [part + end for end in PART_ENDS])
        table = open_table(
            path,
            optional=(LIST, "id") if to_predict else (LIST,),
            not_later=lambda column: is_optional(column, source.reading),
        )
        if format_of(path) == ".tsv" and GLUE_PAIR <= {*table.columns}:
            table = open_table(path, quotes_are_text=True)
        if part == "train" and source.reading.label_column != Reading().label_column:
            table.require((source.reading.label_column,))
        examples: Sequence[TextExample] = examples_of(table, source.reading, to_predict)
        if to_predict:
            examples = with_ids(examples, table)
        vectors = os.path.join(folder, f"{part}.vectors")
        if os.path.exists(vectors):
            return with_vectors(examples, vectors, path)
        return Connected(examples)

    def measured(self, examples: Sequence[TextExample]) -> Sequence[TextExample]:
        """Return the examples of a dev part as they are scored: as searches.

        Raises:
          InputError: they are scored pairs, or single texts.
        """
        if all(isinstance(example, SearchExample) for example in examples):
            return examples
        if any(example.second is None for example in examples):
            raise InputError(
                f"--task={self.name}: a dev part must hold pairs, with which vectors are scored. "
                "Received: single texts. Add pairs, or a folder in BEIR's layout."
            )
        if any(example.label is not None for example in examples):
            raise InputError(
                f"--task={self.name}: a dev part must hold pairs without scores. Received: scored "
                "pairs. Pass --task=sts, whose metrics are those of scored pairs."
            )
        return _search_of(examples)

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Any]) -> dict[str, float]:
        """Return the metrics of the rankings."""
        rankings = [[name for name, _ in prediction["ranking"]] for prediction in predictions]
        metrics.require_known(examples)
        return ranking_metrics.score_rankings(
            rankings, [dict(example.label) for example in examples]
        )

    def answer(self, prediction: Prediction) -> str:
        """Return the id of the first document."""
        return prediction["ranking"][0][0]


class Similarity(EmbeddingData):
    """The same with scored pairs as dev part, such as STS-B's."""

    metrics: tuple[str, ...] = ("spearman", "pearson")
    name = "sts"

    def _has_answers(self, examples: Sequence[TextExample]) -> bool:
        return any(example.label is not None for example in examples)

    def measured(self, examples: Sequence[TextExample]) -> Sequence[TextExample]:
        """Return the examples of a dev part, which are scored pairs.

        Raises:
          InputError: they are not.
        """
        if any(example.label is None or example.second is None for example in examples):
            raise InputError(
                "--task=sts: a dev part must hold pairs with scores. Received: examples without. "
                "Add the column score, or pass --task=embedding."
            )
        return examples

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Any]) -> dict[str, float]:
        """Return the correlations of cosines and scores."""
        return Dataset.score(self, predictions, examples)

    def number(self, prediction: Prediction) -> float:
        """Return the cosine."""
        return prediction["score"]

    def answer(self, prediction: Prediction) -> str:
        """Return the cosine."""
        return str(prediction["score"])


class PairClassification(Similarity):
    """The same with pairs of the scores 0 and 1 as dev part: other texts, or texts that belong."""

    metrics = pair_metrics.METRICS
    name = "pair_classification"

    def measured(self, examples: Sequence[TextExample]) -> Sequence[TextExample]:
        """Return the examples of a dev part.

        Raises:
          InputError: they are not pairs of both scores.
        """
        scores = {None if example.second is None else example.label for example in examples}
        if scores != {0, 1}:
            others = sorted("none" if score is None else f"{score:g}" for score in scores - {0, 1})
            raise InputError(
                "--task=pair_classification: a dev part must hold pairs with the scores 0 and 1. "
                f"Received: {', '.join(others[:3]) or f'only {scores.pop():g}'}. Correct the "
                "scores, or pass --task=sts for others."
            )
        return examples

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Any]) -> dict[str, float]:
        """Return the metrics of the cosines."""
        labels = np.array(metrics.answers_of(examples))
        return pair_metrics.score_pairs(
            labels, np.array([prediction["score"] for prediction in predictions])
        )


def training_pairs(source: Source) -> tuple[Sequence[TextExample], Sequence[str]]:
    """Return the pairs of a training part, and in BEIR's layout all documents.

    Raises:
      InputError: they are single texts, or have scores.
    """
    folder = source.data_dir or ""
    if beir.has_part(folder, "train"):
        searches = beir.read_searches(folder, "train")
        return _pairs_of(searches), searches[0].corpus.texts
    pairs = EmbeddingData().examples(source, "train")
    if any(pair.second is None or pair.label is not None for pair in pairs):
        raise InputError(
            f"--data_dir={folder} must hold pairs without scores. Received: "
            f"{'single texts' if pairs[0].second is None else 'scored pairs'}."
        )
    return pairs, ()


def _section_of(train: Sequence[TextExample]) -> EmbeddingSettings:
    """Return the default section for training examples."""
    first = train[0]
    if first.second is None:
        if first.label is None:
            return EmbeddingSettings(loss="simcse")
        width = len(np.asarray(first.label))
        return EmbeddingSettings(loss="teacher_cosine", projection=width)
    if first.label is None:
        return EmbeddingSettings()
    scores = [example.label for example in train]
    if min(scores) == max(scores):
        raise InputError(
            f"The training pairs must have different scores. Received: only {scores[0]:.4g}."
        )
    lowest, highest = min(scores), max(scores)
    print(
        f"train: {len(train):,} pairs with scores from {lowest:g} to {highest:g}, the highest for "
        "those that are most alike"
    )
    return EmbeddingSettings(loss="cosent", lowest_score=lowest, highest_score=highest)


def _search_of(examples: Sequence[TextExample]) -> list[SearchExample]:
    """Return the searches in pairs: a query for each different first text.

    Queries and documents are numbered from 1. A document that is the query itself is left out of
    its ranking, unless a pair says that it is right.
    """
    documents = dict.fromkeys(text for example in examples for text in example.texts[1:])
    ids = {text: str(number) for number, text in enumerate(documents, 1)}
    corpus = Corpus(tuple(ids.values()), tuple(ids))
    relevant: dict[str, dict[str, float]] = {}
    for example in examples:
        relevant.setdefault(example.first, {})[ids[str(example.second)]] = 1.0
    return [
        SearchExample(
            query,
            label=tuple(grades.items()),
            id=str(number),
            itself=own if (own := ids.get(query)) not in grades else None,
            corpus=corpus,
        )
        for number, (query, grades) in enumerate(relevant.items(), 1)
    ]


def _pairs_of(searches: Sequence[SearchExample]) -> list[TextExample]:
    """Return each query with each of its relevant documents."""
    corpus = searches[0].corpus
    texts = dict(zip(corpus.ids, corpus.texts, strict=True))
    return [
        ContrastExample(search.first, texts[name])
        for search in searches
        for name, grade in search.label or ()
        if grade > 0
    ]
