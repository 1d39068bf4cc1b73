"""Changes that options may make in a conversion: those that leave the model the same."""

import dataclasses
from collections.abc import Collection
from typing import Any

from albert_tf.convert.bundle import Bundle, Weights, head_shapes
from albert_tf.convert.huggingface.task import CLASSES
from albert_tf.convert.unshare import init_groups_from_shared
from albert_tf.runtime import settings
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.tasks.task_settings import TaskSettings
from albert_tf.text.sentencepiece_model import SentencePiece
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.typography import fold_punctuation

# Includes the MLM head's epsilon, because older Hugging Face models were trained with another value
# than their configuration states.
_SETTABLE = (
    "hidden_dropout",
    "attention_dropout",
    "initializer_range",
    "mlm_layer_norm_eps",
    "rematerialize",
    "rematerialize_chunks",
)
_UNSHARING = ("sharing", "num_groups")
_TASK = "task."


@dataclasses.dataclass(frozen=True)
class _Sections:
    task: TaskSettings


def with_overrides(bundle: Bundle, assignments: tuple[str, ...], unshare: bool) -> Bundle:
    """Return the bundle with `assignments` made to its configuration and `task` section.

    With `unshare`, `sharing` and `num_groups` may also be set, and shared weights are copied to the
    layers or groups that no longer share them.

    Raises:
      ConfigError: a value would change the model.
      InputError: with `unshare`, copying weights cannot produce the requested sharing.
    """
    task_assignments = tuple(
        assignment for assignment in assignments if assignment.startswith(_TASK)
    )
    config = settings.override(
        bundle.config,
        [assignment for assignment in assignments if assignment not in task_assignments],
    )
    allowed = _SETTABLE + _UNSHARING if unshare else _SETTABLE
    for key, value in settings.to_dict(config).items():
        if value != getattr(bundle.config, key) and key not in allowed:
            raise ConfigError(
                f"--set must not change the model: it accepts {', '.join(_SETTABLE)} and, with "
                "--init_groups_from_shared, which copies shared weights, "
                f"{', '.join(_UNSHARING)}. Received: {key}={value}."
            )
    weights = bundle.weights
    if unshare:
        weights = init_groups_from_shared(weights, bundle.config, config, bundle.task)
    task = _task(bundle, task_assignments)
    if task is not None and bundle.task is not None:
        stated = {assignment.partition("=")[0] for assignment in task_assignments}
        task, weights = _in_order(task, bundle.task, weights, stated)
    return dataclasses.replace(bundle, config=config, weights=weights, task=task)


def with_folded_punctuation(bundle: Bundle) -> Bundle:
    """Return the bundle with rules for typographic punctuation in its vocabulary.

    Raises:
      InputError: it has no sentencepiece vocabulary.
    """
    tokenizer = bundle.tokenizer
    if tokenizer is None or not isinstance(tokenizer.vocabulary, SentencePiece):
        raise InputError(
            "--fold_punctuation needs a source with a sentencepiece vocabulary. Received: "
            f"{'a vocab.txt' if tokenizer else 'no vocabulary'}. Leave it out."
        )
    model = fold_punctuation(tokenizer.model)
    folded = Tokenizer(model, tokenizer.normalization, tokenizer.training)
    return dataclasses.replace(bundle, tokenizer=folded)


def _task(bundle: Bundle, assignments: tuple[str, ...]) -> TaskSettings | None:
    """Return the `task` section with `assignments` made; they must not change the head."""
    if not assignments:
        return bundle.task
    if bundle.task is None:
        raise ConfigError(
            f"--set {assignments[0]} needs a fine-tuned model, and --from is not one: leave it out."
        )
    task = settings.override(_Sections(bundle.task), assignments).task
    fixed = ["kind", *(key for key in task.HEAD if key != "labels")]  # labels may have other names
    is_other = any(getattr(task, key) != getattr(bundle.task, key) for key in fixed)
    if is_other or head_shapes(bundle.config, task) != head_shapes(bundle.config, bundle.task):
        raise ConfigError(
            "--set must not change the head: keep the number of `task.labels` and the values of "
            f"task.{', task.'.join(fixed)}. Received: {', '.join(assignments)}."
        )
    task.require_positions(bundle.config.max_positions, "--set")
    _require_meaning(task, assignments)
    return task


def _require_meaning(task: TaskSettings, assignments: tuple[str, ...]) -> None:
    """Check that the labels mean no other settings, such as tags of entities among those of words.

    Raises:
      ConfigError: they do.
    """
    if (head := CLASSES.get(task.kind)) is None or not head.label_counts:
        return
    try:
        meant = head.settings_of(head.labels(task))
    except ValueError:
        meant = {"kind": None}
    if any(getattr(task, key) != value for key, value in meant.items()):
        raise ConfigError(
            "--set must not change what the labels mean, as tags of entities (O, B-X, I-X) do in "
            f"place of labels of words. Received: {', '.join(assignments)}. Write the labels in "
            "their order as `id2label` into the source's config.json."
        )


def _in_order(
    task: TaskSettings, before: TaskSettings, weights: Weights, stated: Collection[str]
) -> tuple[TaskSettings, Weights]:
    """Return both in the order of the task's labels, if they are those of `before` in another one.

    Settings with a value for each label keep the value that is `stated`.
    """
    if (head := CLASSES.get(task.kind)) is None or not head.label_counts:
        return task, weights
    names, known = head.labels(task), head.labels(before)
    if names == known or sorted(names) != sorted(known):
        return task, weights
    order = [known.index(name) for name in names]
    moved = {
        key: tuple(getattr(before, key)[place] for place in order)
        for key in head.per_label
        if _TASK + key not in stated
    }
    rows = {f"{head.our_layer}/{leaf}" for leaf in ("kernel", "bias")}
    return task.replace(**moved), {
        name: value[..., order] if name in rows else value for name, value in weights.items()
    }


def assumptions(bundle: Bundle, assignments: tuple[str, ...]) -> str:
    """Return the task settings that neither the source nor --set states, in --set's notation."""
    stated = {assignment.partition("=")[0] for assignment in assignments}
    unstated = [key for key in bundle.assumed if _TASK + key not in stated]
    return ", ".join(f"{_TASK}{key}={_format_value(getattr(bundle.task, key))}" for key in unstated)


def _format_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
