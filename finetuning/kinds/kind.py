"""The contract of a kind in fine-tuning; `albert_tf.tasks.kind` has that of loading and serving."""

import abc
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple

import numpy as np
import tf_keras

from albert_tf.runtime.report_text import MIN_EXAMPLES
from albert_tf.tasks.features import Features
from albert_tf.tasks.kind import Kind
from albert_tf.tasks.task_settings import SettingsT
from albert_tf.text.tokenizer import Tokenizer
from finetuning.datasets.dataset import Data, Dataset, Prediction
from finetuning.datasets.scores.calibration import Confidences
from finetuning.kinds.baselines.regularization import Examples, Predict
from finetuning.kinds.standard_errors import deviation, differences
from finetuning.kinds.thresholds import Thresholds

CROSS_ENTROPY, SQUARED_ERROR = "cross_entropy", "mse"  # losses of students
_RESAMPLES = 200
Embed = Callable[[Sequence[str]], np.ndarray]  # texts -> vectors [N, D]


class TeacherOutput(NamedTuple):
    """A teacher's output for an example.

    Attributes:
      values: float32, the outputs, flat.
      starts: int64, the first characters of the parts of the text that have outputs of their own,
        such as words; empty for an output of the whole.
    """

    values: np.ndarray
    starts: np.ndarray = np.zeros(0, np.int64)


class FinetuningKind(abc.ABC, Generic[SettingsT]):
    """A kind of task in fine-tuning.

    Attributes:
      kind: the kind.
      hub_task: the Hugging Face Hub's name of the task.
      loader: the function of `albert_tf` that loads a run.
      thresholds: its thresholds, if it has any.
      has_class_weights: True if `training.class_weights` may weight its loss.
      label_keys: (key of a prediction, attribute of an example) of what a model may find none of.
      empty_remedy: what else helps a model that finds none, as a sentence after a blank.
      table_columns: the columns of a table of predictions with a row for each of what is found.
        Empty: a row for each prediction, of its values.
      counted: the settings that `with_counts` sets.
      student_losses: the values of `finetuning.distill --loss`, the default first: CROSS_ENTROPY
        at a temperature, or SQUARED_ERROR. Empty: no student can be trained on the outputs of a
        teacher.
      student_settings: the settings of its section that a student has, as `task.key: (value, why)`.
      student_data: the settings of its section that follow from the student's data.
      takes_texts: True if a student may also learn from a file of texts without labels.
      learns_vectors: True if a model of vectors may be the teacher.
      has_vectors: True for models of vectors.
      has_depths: True if `outputs_of` gives the outputs of its export for the texts of an example.
      has_one_answer: True if equal texts with different labels contradict each other.
      has_temperature: True if it has the setting `logit_temperature`; its loss is a log loss.
      few_labels: the settings of --recipe=few_labels as `key: value`; empty if there is none.
      has_baseline: True if `baseline` is a linear model on features of the words.
    """

    kind: ClassVar[Kind[Any]]
    hub_task: ClassVar[str]
    loader: ClassVar[str] = "load_predictor"
    thresholds: ClassVar[Thresholds[Any] | None] = None
    has_class_weights: ClassVar[bool] = False
    label_keys: ClassVar[tuple[str, str] | None] = None
    empty_remedy: ClassVar[str] = ""
    table_columns: ClassVar[tuple[str, ...]] = ()
    counted: ClassVar[Sequence[str]] = ()
    student_losses: ClassVar[Sequence[str]] = ()
    student_settings: ClassVar[Mapping[str, tuple[Any, str]]] = {}
    student_data: ClassVar[Sequence[str]] = ()
    takes_texts: ClassVar[bool] = True
    learns_vectors: ClassVar[bool] = False
    has_vectors: ClassVar[bool] = False
    has_depths: ClassVar[bool] = False
    has_one_answer: ClassVar[bool] = False
    has_temperature: ClassVar[bool] = False
    few_labels: ClassVar[Mapping[str, Any]] = {}
    has_baseline: ClassVar[bool] = False

    # A line of `finetuning.predict --input`.

    @abc.abstractmethod
    def expected_line(self, task: SettingsT) -> str:
        """Return a description of a valid line."""

    def of_cells(self, cells: Sequence[str], task: SettingsT) -> Any:
        """Return the example in the cells of a line, which tabs separate.

        Raises:
          ValueError: the line must be a JSON object, or must have another number of cells.
        """
        raise ValueError

    @abc.abstractmethod
    def of_json(self, row: Mapping[str, Any], task: SettingsT, columns: Sequence[str]) -> Any:
        """Return the example in a JSON object; `columns` are the run's own names of the texts.

        Raises:
          ValueError: a key is missing, or has another type; the message says so.
        """

    # Notes on the examples, scores and the model card.

    def answer_of(self, example: Any) -> Any:
        """Return what an example teaches, by which contradictory ones are found."""
        return example.label

    def constant_answer(self, data: Data[SettingsT]) -> tuple[str, Prediction] | None:
        """Return the answer to give without reading the text, in words and as a prediction.

        Return None if the examples have no answer in common.
        """
        return None

    @abc.abstractmethod
    def card_sections(
        self, task: SettingsT, predictions: Sequence[Prediction], examples: Sequence[Any]
    ) -> list[str]:
        """Return the sections of a model card about predictions and their mistakes."""

    def rows_of(self, prediction: Prediction) -> Sequence[Sequence[Any]]:
        """Return the rows with `table_columns` of a prediction."""
        raise NotImplementedError

    def by_name(self, example: dict[str, Any], task: SettingsT) -> dict[str, Any]:
        """Return the fields of an example with labels by name instead of by number."""
        return example

    def example_of(self, values: Mapping[str, Any], task: SettingsT) -> Any:
        """Return the example that `by_name` has turned into these fields, read from JSON."""
        return self.kind.example(**tuples_of(values))

    def standard_errors(
        self,
        dataset: Dataset,
        predictions: Sequence[Prediction],
        examples: Sequence[Any],
        baseline: Sequence[Prediction] | None = None,
    ) -> dict[str, float]:
        """Return the standard errors of the main metrics, from the number of examples.

        For an accuracy p over n examples, it is sqrt(p (1 - p) / n). Otherwise it is the standard
        deviation over resamples of the examples. Kinds whose scores are means over examples that
        may have a source in common take `errors_of_means`.

        With the predictions of a `baseline` for the same examples, they are those of the
        differences to its scores, from the same resamples.

        There are none for fewer than `MIN_EXAMPLES` examples: ± is read as the width of a normal
        distribution, which is then a poor approximation.
        """
        count = len(examples)
        if count < MIN_EXAMPLES:
            return {}

        def resampled(answers: Sequence[Prediction]) -> Iterator[dict[str, float]]:
            rng = np.random.default_rng(0)
            for _ in range(_RESAMPLES):
                rows = rng.integers(count, size=count)
                resample = [examples[row] for row in rows]
                scores = dataset.score([answers[row] for row in rows], resample)
                yield self.scores_of_resample(scores, resample, examples)

        errors = {}
        if baseline is not None or set(dataset.metrics) != {"accuracy"}:
            scores = [*resampled(predictions)]
            if baseline is not None:
                scores = differences(scores, resampled(baseline))
            errors = {name: deviation(scores, name) for name in dataset.metrics}
        if baseline is None and "accuracy" in dataset.metrics:
            value = dataset.score(predictions, examples)["accuracy"]
            errors["accuracy"] = math.sqrt(value * (1 - value) / count)
        return errors

    def scores_of_resample(
        self, scores: dict[str, float], resample: Sequence[Any], examples: Sequence[Any]
    ) -> dict[str, float]:
        """Return the scores of a resample of examples, without what it happens to lack."""
        return scores

    def baseline(self, task: SettingsT, train: Examples, test: Examples) -> Predict:
        """Return a function from the strength of the regularization to predictions for `test`."""
        raise NotImplementedError

    def references(self, examples: Sequence[Any]) -> Mapping[str, Sequence[Prediction]]:
        """Return the predictions of methods without a model, by name, for beside the scores."""
        return {}

    def confidences(
        self, predictions: Sequence[Prediction], examples: Sequence[Any]
    ) -> Confidences | None:
        """Return the probabilities of answers, and which are right; None if there are none."""
        return None

    # Training.

    def check_training(self, config: Any, train: Features, replicas: int) -> None:
        """Check that the training features have what the settings of a run need.

        Args:
          config: the run's `FinetuneConfig`.
          train: the features.
          replicas: the number of replicas, each of which has its share of a batch.

        Raises:
          ConfigError: they have not.
        """

    def with_counts(self, task: SettingsT, train: Any) -> SettingsT:
        """Return the settings with what is counted in the training features."""
        return task

    def head_solver(
        self, model: Any, train: Features, training: Any
    ) -> Callable[[Any], None] | None:
        """Return what sets the head of a model from the training examples; None if it is trained.

        Args:
          model: the model with its initial weights.
          train: the training features.
          training: the `training` section.
        """
        return None

    def has_thresholds(self, task: SettingsT) -> bool:
        """Return True if models with these settings have thresholds."""
        return self.thresholds is not None

    def outputs_of(self, served: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the model's outputs from those of a signature of its export, if `has_depths`."""
        raise NotImplementedError

    # Distillation, if it can be taught.

    def text_columns(self, columns: Sequence[str], pair: bool) -> Sequence[str]:
        """Return the columns of the texts in a table; `columns` are the run's own, if any."""
        raise NotImplementedError

    def of_texts(self, *texts: str) -> Any:
        """Return an example without a label; `example.texts` has the texts again."""
        raise NotImplementedError

    def taught_outputs(self, features: Any, outputs: np.ndarray) -> Sequence[TeacherOutput]:
        """Return a teacher's output for each example, from those of its features' units."""
        raise NotImplementedError

    def vector_outputs(
        self, examples: Sequence[Any], queries: Embed, passages: Embed
    ) -> Sequence[TeacherOutput]:
        """Return the outputs for examples of a model of vectors, if the kind `learns_vectors`."""
        raise NotImplementedError

    def as_prediction(self, output: TeacherOutput) -> Prediction:
        """Return an output from `vector_outputs` as a prediction."""
        raise NotImplementedError

    def taught_features(
        self,
        examples: Sequence[Any],
        answers: Sequence[TeacherOutput],
        tokenizer: Tokenizer,
        task: SettingsT,
    ) -> Features:
        """Return a student's features, whose target is made of its teacher's outputs, flat."""
        features = self.kind.featurize(examples, tokenizer, task)
        targets = {"label": self.taught_targets(features, answers, task)}
        return dataclasses.replace(features, targets=targets)

    def taught_targets(
        self, features: Any, answers: Sequence[TeacherOutput], task: SettingsT
    ) -> np.ndarray:
        """Return the target `label` for `taught_features`."""
        raise NotImplementedError

    def taught_loss(self, task: SettingsT, loss: str, temperature: float) -> tf_keras.losses.Loss:
        """Return the loss of a student, one of `student_losses`; some have a temperature."""
        raise NotImplementedError


def tuples_of(values: Any) -> Any:
    """Return a value of JSON with tuples for lists, as examples have them."""
    if isinstance(values, dict):
        return {name: tuples_of(value) for name, value in values.items()}
    return tuple(map(tuples_of, values)) if isinstance(values, list) else values


def text_of(row: Mapping[str, Any], name: str) -> str:
    """Return the text under a key of a JSON object.

    Raises:
      ValueError: there is none.
    """
    if name not in row:
        raise ValueError(f"the key `{name}` is missing")
    text = row[name]
    if not isinstance(text, str):
        raise ValueError(f"the key `{name}` must hold a text")
    return text
