"""The starting point of a fine-tuning: the encoder, its vocabulary, its configuration."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.models.checkpoints import (
    is_saved_model,
    load_config,
    load_exported_config,
    note_unfinished,
    set_variables,
    weights_fingerprint,
)
from albert_tf.models.config import AlbertConfig
from albert_tf.models.encoder import AlbertEncoder, load_encoder
from albert_tf.runtime import devices, pretrained, settings
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.predictor import load_task_model, task_of
from albert_tf.tasks.task_model import TaskModel
from albert_tf.tasks.task_settings import TaskSettings
from albert_tf.text.tokenizer import Tokenizer, tokenizer_of_model
from finetuning.datasets.dataset import Data
from finetuning.kinds.registry import FINETUNING, THRESHOLDS
from finetuning.training.config import FinetuneConfig, TrainingConfig
from finetuning.training.keys import require_settings

_SMALLEST_WIDTH = 768  # of the paper's models


@dataclasses.dataclass(frozen=True)
class StartingPoint:
    """The initial weights of a run.

    Attributes:
      path: a run folder, a converted folder or an exported encoder.
      is_task: True for a fine-tuned run, whose head is kept if the labels are the same.
      is_random: True for random initialization instead of the weights at `path`.
      tokenizer: the encoder's vocabulary.
      config: the encoder's configuration.
    """

    path: str
    is_task: bool
    tokenizer: Tokenizer
    config: AlbertConfig
    is_random: bool = False

    @property
    def origin(self) -> str:
        """The starting point as the run's config.json has it, with an included model's name."""
        return pretrained.RANDOM * self.is_random + pretrained.shown(os.path.abspath(self.path))

    @property
    def fingerprint(self) -> str:
        """`weights_fingerprint` of the weights; empty for new ones."""
        return "" if self.is_random else weights_fingerprint(self.path)

    @staticmethod
    def of(
        init: str | None,
        init_from_task: str | None,
        tokenizer: str | None,
        unfinished: bool = False,
    ) -> "StartingPoint":
        """Return the starting point that the command-line options describe.

        Raises:
          InputError: neither or both of `init` and `init_from_task` are set, there is no encoder,
            the run has not ended and `unfinished` is false, `init_from_task` is not fine-tuned, or
            the vocabulary is that of another model.
        """
        if (init is None) == (init_from_task is None):
            raise InputError(
                f"pass either --init or --init_from_task. Received: {init!r}, {init_from_task!r}."
            )
        path = str(init or init_from_task)
        is_random = path.startswith(pretrained.RANDOM) and not os.path.exists(path)
        if is_random and init_from_task:
            raise InputError(
                f"--init_from_task must not begin with {pretrained.RANDOM}. Received: {path!r}."
            )
        path = pretrained.locate(path.removeprefix(pretrained.RANDOM) if is_random else path)
        config = load_exported_config(path) if is_saved_model(path) else load_config(path)
        if init_from_task and (kind := RunDir(path).kind()) not in KINDS:
            raise InputError(
                f"--init_from_task={path} must be a fine-tuned run. Received: a run of kind "
                f"{kind!r}. Pass --init={path}."
            )
        RunDir(path).require_ended("--init" if init else "--init_from_task", unfinished)
        note_unfinished(path)
        load_encoder(path)  # raises before anything is written
        vocabulary = tokenizer_of_model(path, tokenizer, config.vocab_size)
        return StartingPoint(path, init_from_task is not None, vocabulary, config, is_random)

    def model(self, config: FinetuneConfig) -> TaskModel:
        """Return the task's model on the encoder, with a new head or that of the same task."""
        encoder = AlbertEncoder(config.model).create_weights()
        if not self.is_random:
            set_variables(encoder, load_encoder(self.path).variables, self.path)
        model = KINDS[config.task.kind].model(encoder, config.task).create_weights()
        if self.is_task:
            source_model = load_task_model(self.path)
            if source_model.task.head() == config.task.head():
                model.set_weights(source_model.get_weights())
        return model


def _require_fit(path: str, task: TaskSettings) -> None:
    """Check that a run with the labels of `task` has all settings that its head depends on."""
    run_task = task_of(path)
    if run_task.kind != task.kind or not task.has_labels():
        return
    values = {key: (getattr(run_task, key), getattr(task, key)) for key in task.HEAD}
    if len(set(values.pop("labels"))) > 1:  # a new head
        return
    for key, (of_run, wanted) in values.items():
        if of_run != wanted:
            raise InputError(
                f"--init_from_task={path} must have the `task.{key}` of the data, because it has "
                f"the same labels. Received: a run with {of_run!r}, and data with {wanted!r}. "
                f"Correct the data, or pass --init={path}."
            )


def resolve(
    start: StartingPoint,
    data: Data,
    recipe: Mapping[str, Any],
    assignments: Sequence[str],
    device: str,
) -> FinetuneConfig:
    """Return the configuration, from the encoder, the task, the recipe and the user's values.

    A note says that a small encoder needs a higher learning rate than the paper's, if the user has
    set none.

    Raises:
      ConfigError: a value is impossible, or follows from the data or from --init.
      InputError: the run of --init_from_task has the same labels, but another head.
    """
    if start.is_task:
        _require_fit(start.path, data.task)
    require_settings(type(data.task), assignments)
    keys = [assignment.partition("=")[0].strip() for assignment in assignments]
    # The encoder has no dropout unless the recipe or the user sets it (paper, section 4.9).
    model = start.config.replace(hidden_dropout=0.0, attention_dropout=0.0)
    given = {**data.recipe, **recipe}
    config = settings.override(
        FinetuneConfig(model, data.task), [f"{key}={value}" for key, value in given.items()]
    )
    config = settings.override(config, assignments)
    if "task.seq_length" not in keys:
        config = dataclasses.replace(
            config, task=_fit_lengths(config.task, model.max_positions, keys)
        )
    config.task.require_positions(model.max_positions, "--set")
    precision = devices.resolve_precision(config.training.precision, device)
    training = dataclasses.replace(config.training, precision=precision)
    _require_applicable(config.task, training)
    if "training.learning_rate" not in keys:
        _note_low_rate(config)
    if device == "tpu" and training.pad_to_longest:  # it compiles a program for each shape
        print(f"On a TPU all batches are padded to task.seq_length={config.task.seq_length}.")
        training = dataclasses.replace(training, pad_to_longest=False)
    return dataclasses.replace(config, training=training)


def _note_low_rate(config: FinetuneConfig) -> None:
    rate, width = config.training.learning_rate, config.model.hidden_size
    if width < _SMALLEST_WIDTH and rate <= TrainingConfig.learning_rate:
        print(
            f"note: training.learning_rate={rate:g} suits models of the paper's sizes. An encoder "
            f"of width {width} needs a higher one, such as 0.0005."
        )


def _require_applicable(task: TaskSettings, training: TrainingConfig) -> None:
    """Check that the task has what the settings are about.

    Raises:
      ConfigError: it has not, or `threshold_per_label` is set without held-out examples.
    """
    kind, share = FINETUNING[task.kind], training.threshold_share
    has_thresholds = kind.has_thresholds(task)
    if share and not has_thresholds:
        raise ConfigError(
            "`training.threshold_share` requires "
            f"{' or '.join(rule.needs for rule in THRESHOLDS.values())}. Received: {share}, for a "
            f"task of kind {task.kind!r}."
        )
    per_label = bool(kind.thresholds and kind.thresholds.per_label)
    if training.threshold_per_label and not (share and per_label):
        raise ConfigError(
            "`training.threshold_per_label` requires "
            f"{' or '.join(rule.needs for rule in THRESHOLDS.values() if rule.per_label)} and "
            f"`training.threshold_share`. Received: a task of kind {task.kind!r} and {share}."
        )
    if training.class_weights != "none" and not kind.has_class_weights:
        raise ConfigError(
            "`training.class_weights` requires a task of kind "
            f"{' or '.join(n for n, other in FINETUNING.items() if other.has_class_weights)}. "
            f"Received: {training.class_weights!r}, for a task of kind {task.kind!r}."
        )


def _fit_lengths(task: TaskSettings, max_positions: int, chosen: Sequence[str]) -> TaskSettings:
    """Return the task with sequences that fit the encoder.

    The settings that the user has `chosen` are unchanged.
    """
    changed = {
        key: value
        for key, value in task.limits(max_positions).items()
        if f"task.{key}" not in chosen and value != getattr(task, key)
    }
    if changed:
        values = (f"`task.{key}` {getattr(task, key)} -> {changed[key]}" for key in changed)
        print(f"The encoder has {max_positions} positions: {', '.join(values)}.")
    return task.replace(**changed)
