"""The settings that --set may change in a fine-tuning."""

import dataclasses
import difflib
from collections.abc import Sequence

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import settings
from albert_tf.runtime.errors import ConfigError
from albert_tf.tasks.task_settings import TaskSettings
from finetuning.training.config import FinetuneConfig, TrainingConfig

# The rest of `task` and of `model` follows from the data and from --init.
_MODEL = ("hidden_dropout", "attention_dropout", "rematerialize")
# Names in other programs that resemble none of ours.
_ALIASES = {
    "lr": "learning_rate",
    "bs": "batch_size",
    "wd": "weight_decay_rate",
    "max_length": "seq_length",
    "max_len": "seq_length",
    "early_stopping": "patience",
}


def require_settings(task_class: type[TaskSettings], assignments: Sequence[str]) -> None:
    """Check the keys and values of `--set` for a kind of task, which takes no data.

    Args:
      task_class: the class of the `task` section.
      assignments: the `key=value` strings.

    Raises:
      ConfigError: a key is unknown, or follows from the data or from --init, or a value has the
        wrong type or is out of bounds. For an unknown key the message suggests similar ones.
    """
    task = _names(task_class)
    sections = {
        "training": _names(TrainingConfig),
        "task": [name for name in task if name not in ("kind", *task_class.FROM_DATA)],
        "model": _MODEL,
    }
    valid = ["seed", *(f"{section}.{name}" for section in sections for name in sections[section])]
    fixed = {f"task.{name}" for name in task} | {f"model.{name}" for name in _names(AlbertConfig)}
    for assignment in assignments:
        key = assignment.partition("=")[0].strip()
        if key in valid:
            continue
        if key in fixed:
            raise ConfigError(
                f"`{key}` follows from the data or from --init and cannot be set. These can: "
                f"{', '.join(valid)}."
            )
        near = _similar(key, valid)
        raise ConfigError(
            f"unknown key `{key}`. "
            + (f"Did you mean {' or '.join(near)}?" if near else f"Valid keys: {', '.join(valid)}.")
        )
    section = task_class(**({"labels": ("0", "1")} if task_class.has_labels() else {}))
    settings.override(FinetuneConfig(AlbertConfig(), section), assignments)


def _names(cls: type) -> list[str]:
    return [field.name for field in dataclasses.fields(cls)]


def _similar(key: str, valid: Sequence[str]) -> list[str]:
    """Return the keys whose last parts begin like that of `key`, or else resemble it."""
    keys = {path.rpartition(".")[2]: path for path in valid}
    name = key.rpartition(".")[2]
    name = _ALIASES.get(name, name)
    near = [path for path in keys if path.startswith(name)]
    return [keys[path] for path in near or difflib.get_close_matches(name, keys, n=3)]
