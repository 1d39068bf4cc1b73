"""Rankings in fine-tuning."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.runtime.errors import ConfigError
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.ranking.examples import RankingExample, TrainingQuery
from albert_tf.tasks.ranking.features import RankingFeatures
from albert_tf.tasks.ranking.kind import answer
from albert_tf.tasks.ranking.losses import ABSENT
from albert_tf.tasks.ranking.model import RankingSettings
from albert_tf.text.tokenizer import Tokenizer
from finetuning.datasets.dataset import Dataset, Prediction
from finetuning.datasets.rankings.list_files import LIST, QUERY
from finetuning.kinds.baselines import word_search
from finetuning.kinds.cards import mistakes
from finetuning.kinds.kind import (
    CROSS_ENTROPY,
    SQUARED_ERROR,
    Embed,
    FinetuningKind,
    TeacherOutput,
    text_of,
)
from finetuning.kinds.standard_errors import errors_of_means
from finetuning.kinds.text_kind import SoftCrossEntropy

_SCALE, _LEAST_LENGTH = np.float32(20), 1e-12


class Ranking(FinetuningKind[RankingSettings]):
    """A score for each candidate of a query."""

    kind = KINDS["ranking"]
    hub_task = "text-ranking"
    loader = "load_ranker"
    student_losses = (CROSS_ENTROPY, SQUARED_ERROR)
    student_data = ("largest_grade",)
    takes_texts = False
    learns_vectors = True

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

    def standard_errors(
        self,
        dataset: Dataset,
        predictions: Sequence[Prediction],
        examples: Sequence[Any],
        baseline: Sequence[Prediction] | None = None,
    ) -> dict[str, float]:
        """Return the standard errors of the means over the queries that are scored."""
        clean = [row for row, example in enumerate(examples) if example.is_clean]
        scored = [predictions[row] for row in clean], [examples[row] for row in clean]
        others = None if baseline is None else [baseline[row] for row in clean]
        return errors_of_means(dataset, *scored, others)

    references = staticmethod(word_search.of_candidates)

    def check_training(self, config: Any, train: Features, replicas: int) -> None:
        """Check that the loss has what it compares.

        Raises:
          ConfigError: `task.loss` is `listwise`, and no query has relevant and other candidates.
        """
        grades = train.hints["grades"]
        are_clean = (grades > 0).any(axis=1) & (grades == 0).any(axis=1)
        if config.task.loss == "listwise" and not are_clean.any():
            raise ConfigError(
                "`task.loss` listwise compares the candidates of a query, so a training query must "
                f"have relevant candidates and others. Received: {len(train):,} queries without. "
                "Add candidates, or set task.loss=pointwise."
            )

    def of_texts(self, *texts: str) -> RankingExample:
        """Return a query and its candidates."""
        query, *candidates = texts
        return RankingExample(query, tuple(candidates))

    def taught_outputs(self, features: RankingFeatures, outputs: np.ndarray) -> list[TeacherOutput]:
        """Return a teacher's scores for the candidates of each query."""
        starts = np.flatnonzero(np.diff(features.example))
        return [TeacherOutput(scores) for scores in np.split(outputs, starts + 1)]

    def vector_outputs(
        self, examples: Sequence[RankingExample], queries: Embed, passages: Embed
    ) -> list[TeacherOutput]:
        """Return the cosines of each query and its candidates, multiplied by 20.

        That is the usual scale of cosines as logits, a temperature of 0.05.
        """
        texts = list(dict.fromkeys(text for example in examples for text in example.candidates))
        rows = {text: row for row, text in enumerate(texts)}
        vectors = _of_length_1(passages(texts))
        asked = _of_length_1(queries([example.query for example in examples]))
        return [
            TeacherOutput(_SCALE * vectors[[rows[text] for text in example.candidates]] @ vector)
            for example, vector in zip(examples, asked, strict=True)
        ]

    def as_prediction(self, output: TeacherOutput) -> Prediction:
        """Return the ranking by an output."""
        return answer(output.values)

    def taught_features(
        self,
        examples: Sequence[RankingExample],
        answers: Sequence[TeacherOutput],
        tokenizer: Tokenizer,
        task: RankingSettings,
    ) -> Features:
        """Return queries to train on, whose target is the teacher's scores, float32 [N, per_unit].

        The candidate that the teacher finds best has the grade 1, so that each step reads it.
        """
        queries = [TrainingQuery(**vars(example)) for example in examples]
        features = self.kind.featurize(queries, tokenizer, task)
        shape = len(features), features.per_unit
        label: np.ndarray = np.zeros(shape, np.float32)
        grades: np.ndarray = np.full(shape, -1, np.float32)
        for row, (scores, _) in enumerate(answers):
            label[row, : len(scores)], grades[row, : len(scores)] = scores, 0
            grades[row, scores.argmax()] = 1
        return dataclasses.replace(features, targets={"label": label}, hints={"grades": grades})

    def taught_loss(
        self, task: RankingSettings, loss: str, temperature: float
    ) -> tf_keras.losses.Loss:
        """Return the loss of a student, over the candidates of a query that a step reads."""
        return OrderLoss(temperature if loss == CROSS_ENTROPY else None)


def _of_length_1(vectors: np.ndarray) -> np.ndarray:
    vectors = np.asarray(vectors, np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), _LEAST_LENGTH)


@tf_keras.saving.register_keras_serializable("albert_tf")
class OrderLoss(tf_keras.losses.Loss):
    """The loss of a student's scores for the candidates of a query, against its teacher's.

    With a temperature, it is `SoftCrossEntropy` over the candidates. Without, it is the variance of
    the differences between their scores: half of the mean squared difference between the margins of
    all pairs of candidates (Margin-MSE, arXiv 2010.02666).

    `y_true` and `y_pred` are scores [B, N]; those of `y_pred` are `ABSENT` where none was read.
    """

    def __init__(self, temperature: float | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.temperature = temperature

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return super().get_config() | {"temperature": self.temperature}

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        """Return the loss of each query, [B]."""
        is_read = y_pred > ABSENT / 2
        if self.temperature:
            teacher = tf.where(is_read, y_true, ABSENT)
            return SoftCrossEntropy(self.temperature).call(teacher, y_pred)
        weights = tf.cast(is_read, y_pred.dtype)
        weights /= tf.maximum(tf.reduce_sum(weights, axis=1, keepdims=True), 1)
        errors = tf.where(is_read, y_pred - y_true, 0.0)
        mean = tf.reduce_sum(weights * errors, axis=1, keepdims=True)
        return tf.reduce_sum(weights * tf.square(errors - mean), axis=1)
