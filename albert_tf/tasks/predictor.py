"""Prediction with a fine-tuned run."""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import albert_tf
from albert_tf.models.checkpoints import is_saved_model
from albert_tf.runtime import pretrained
from albert_tf.runtime.arguments import list_of, positive
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.forks import require_unforked
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.task_model import TaskModel
from albert_tf.tasks.task_settings import TaskSettings
from albert_tf.text.tokenizer import load_tokenizer

_ANSWERS = ("label", "answers", "is_impossible", "entities")  # attributes of examples


class Predictor:
    """A fine-tuned run, ready to predict; see `load_predictor`.

    Attributes:
      model: the task model.
      task: the run's `task` section.
      tokenizer: the run's tokenizer.

    Raises:
      InputNotFoundError: `path` is not a run, or has no checkpoint.
      InputError: the run is not a fine-tuned one, or its checkpoint does not fit.
    """

    def __init__(self, path: str) -> None:
        path = pretrained.locate(path)
        self.model = load_task_model(path)
        self.task = self.model.task
        self.tokenizer = load_tokenizer(path)
        self._kind = KINDS[self.task.kind]

    def __call__(self, examples: Iterable[Any], batch_size: int = 32) -> list[dict[str, Any]]:
        """Return a prediction for each example; its keys depend on the kind of task.

        An empty text also gets a prediction, as from `finetuning.predict` and from exports, so that
        it does not make a whole request fail. Answers that examples have are not read.

        Args:
          examples: a list or another iterable of `TextExample` or `TokenExample`, or of strings
            for single texts; of `SpanExample`; or of `ChoiceExample`.
          batch_size: the number of examples, or of windows over contexts, per batch.

        Raises:
          InputError: `examples` is a single example or a table, or contains a value of the wrong
            class, or `batch_size` is not positive.
        """
        examples, batch_size = self._examples(examples), positive("batch_size", batch_size)
        return self.answer([*map(_unanswered, examples)], batch_size)[0] if examples else []

    def _examples(self, values: Any) -> list[Any]:
        """Return a list of examples, also from strings if the kind takes single texts."""
        wanted: Any = self._kind.example
        takes_strings = self._kind.takes_strings
        values = list_of(
            (wanted, str) if takes_strings else wanted,
            values,
            f"a run of kind {self.task.kind!r} takes a list of {_name_of(wanted)}"
            f"{' or strings' if takes_strings else ''}.",
        )
        return [wanted(value) if isinstance(value, str) else value for value in values]

    def answer(
        self, examples: Sequence[Any], batch_size: int
    ) -> tuple[list[dict[str, Any]], Features]:
        """Return the predictions, as a call does, and the features, which report truncation.

        `examples` must not be empty.

        Raises:
          InputError: an example is of the wrong class.
        """
        examples = self._examples(examples)
        for example in examples:
            if wrong := [(k, v) for k, v in example.named_texts if not isinstance(v, str)]:
                name, value = wrong[0]
                raise InputError(
                    f"`{name}` of {_name_of(type(example))} must be a string. Received: {value!r}."
                )
        features = self._kind.featurize(examples, self.tokenizer, self.task)
        outputs = predict(self.model, features, batch_size)
        return self._kind.decode(outputs, features, examples, self.task), features


def _unanswered(example: Any) -> Any:
    """Return the example without its answer."""
    fields = [field for field in dataclasses.fields(example) if field.name in _ANSWERS]
    return dataclasses.replace(example, **{field.name: field.default for field in fields})


def _name_of(example: type) -> str:
    """Return the name by which a caller imports a class of examples."""
    is_public = example.__name__ in albert_tf.__all__
    return f"{albert_tf.__name__ if is_public else example.__module__}.{example.__name__}"


def load_predictor(path: str | os.PathLike[str]) -> Predictor:
    """Load the fine-tuned run in a folder for prediction.

    >>> predictor = albert_tf.load_predictor("runs/reviews")  # text_classification
    >>> (answer,) = predictor(["a gripping story"])
    >>> sorted(answer)
    ['label', 'probabilities', 'score']

    The keys of an answer depend on the kind of task: `entities` for token_classification, `labels`
    for multi_label, `label` ("A", "B", ...) for multiple_choice. A pair of texts is a
    `TextExample`, a question of SQuAD a `SpanExample`; for rankings use `load_ranker`. The errors
    are those of `Predictor`.
    """
    return Predictor(os.fspath(path))


def task_of(path: str) -> TaskSettings:
    """Return the `task` section of a fine-tuned run without loading its weights.

    Raises:
      InputNotFoundError: `path` is not a run.
      InputError: the run is not a fine-tuned one, or `path` is an export.
    """
    if is_saved_model(path):
        raise InputError(
            f"{path!r} is an export: call a signature of tf.saved_model.load(PATH), or pass the "
            "run that it was exported from."
        )
    run = RunDir(path)
    kind = KINDS.get(run.kind() or "")
    if kind is None:
        raise InputError(
            f"{path!r} is not a fine-tuned run: its task is {run.kind()!r}, not one of "
            f"{', '.join(KINDS)}. Fine-tune it first, with finetuning.train --init={path}."
        )
    return kind.settings_of(run)


def load_task_model(path: str) -> TaskModel:
    """Load the fine-tuned model of a run folder. The errors are those of `Predictor`."""
    return KINDS[task_of(path).kind].load(path)


def predict(model: TaskModel, features: Features, batch_size: int) -> Any:
    """Return the model's outputs for all units: their structure, as arrays [N, ...].

    Units of similar length share a batch, which keeps padding low. On a TPU, which compiles a
    program for each shape, all units are padded to `features.seq_length`.

    Raises:
      InputError: the process was forked after a model was loaded.
    """
    require_unforked()
    strategy = model.distribute_strategy
    is_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
    length = features.seq_length if is_tpu else None
    order = np.argsort(features.unit_lengths, kind="stable")
    if len(order) <= batch_size and not is_tpu and strategy.num_replicas_in_sync == 1:
        # A pipeline takes four times as long to start as one short text to compute.
        return model.predict_on_batch(features.batch(tf.range(len(order)))[0])
    whole: np.ndarray = np.resize(
        order, -(-len(order) // batch_size) * batch_size
    )  # repeat units to fill the last batch
    batches = tf.data.Dataset.from_tensor_slices(whole.astype(np.int32))
    batches = batches.batch(batch_size, drop_remainder=True)
    batches = batches.map(lambda units: features.batch(units, length)[0]).prefetch(2)
    outputs = model.predict(batches, verbose=0)
    places = np.argsort(order, kind="stable")
    return tf.nest.map_structure(lambda values: values[: len(order)][places], outputs)
