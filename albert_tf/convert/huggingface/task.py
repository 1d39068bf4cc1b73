"""The heads of transformers' fine-tuned models, and the task settings in their config.json.

Their files contain the class, the labels and the dropout. The rest of our `task` section (single
texts or pairs, lengths) is stored under our own key, which transformers keeps but ignores.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from albert_tf.convert.bundle import HEAD, OPTIONAL, MismatchPolicy, Weights
from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import settings
from albert_tf.runtime.errors import InputError, shortened
from albert_tf.tasks.kind import Kind
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.task_settings import TaskSettings
from albert_tf.tasks.transformers_head import MOST_LABELS, TransformersHead

SECTION = "albert_tf_task"
# kind -> its class
CLASSES = {name: kind.transformers for name, kind in KINDS.items() if kind.transformers}
PRETRAINED = TransformersHead[Any]("AlbertForPreTraining", "")
HEADS = (*dict.fromkeys(f"{head.layer}." for head in CLASSES.values()),)  # weights' prefixes
_WITHOUT_HEAD = "drop its head with --ignore=head --allow_missing=mlm_head,pair_head."


def class_of(task: TaskSettings | None) -> TransformersHead[Any]:
    """Return the class of a fine-tuned model, or that of a pretrained one."""
    return PRETRAINED if task is None else CLASSES[task.kind]


def check(task: TaskSettings | None) -> list[str]:
    """Return notes on what their class for a task loses.

    Raises:
      InputError: they have no class for the task.
    """
    if task is None:
        return []
    if (head := CLASSES.get(task.kind)) is None:
        raise InputError(
            f"transformers only has classes for the kinds {', '.join(CLASSES)}. Received: a run of "
            f"kind {task.kind!r}. Serve it with albert_tf.export, or {_WITHOUT_HEAD}"
        )
    if refusal := head.refusal(task):
        raise InputError(f"{refusal}, or {_WITHOUT_HEAD}")
    notes = []
    if not head.has_pooler:
        notes.append(
            f"{head.architecture} has no pooler, so yours is dropped. It does not affect the "
            "answers."
        )
    if task.long_texts != "cut":
        notes.append(
            f"{head.architecture} truncates long texts, which yours reads in windows "
            f"(task.long_texts={task.long_texts}): their answers will differ."
        )
    return notes


def to_json(task: TaskSettings) -> dict[str, Any]:
    """Return the keys of their config.json that describe a task."""
    head = CLASSES[task.kind]
    values: dict[str, Any] = {
        "architectures": [head.architecture],
        "classifier_dropout_prob": task.dropout,
        SECTION: settings.to_dict(task),
    }
    if head.label_counts:
        values |= _labels_to_json(head.labels(task))
    if head.problem_type:
        values["problem_type"] = head.problem_type
    return {**values, **head.config_keys}


def _labels_to_json(labels: tuple[str, ...]) -> dict[str, Any]:
    """Return `id2label` and `label2id`; transformers derives `num_labels` from them."""
    return {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }


def read(
    values: Mapping[str, Any], config: AlbertConfig, policy: MismatchPolicy, source: str
) -> tuple[Any, tuple[str, ...]]:
    """Read the `task` section of a fine-tuned model.

    Class, labels and dropout come from their keys, because the model may have been trained further
    after we wrote it. The rest comes from our own key or, failing that, from our defaults. Lengths
    are limited to the model's positions.

    Args:
      values: the contents of their config.json.
      config: our configuration of the model.
      policy: decides whether the head is skipped.
      source: the file's name in messages.

    Returns:
      The `task` section and those of its keys that have our defaults; (None, ()) for a pretrained
      model, or if `policy` ignores the head.

    Raises:
      InputError: the labels are not numbered from 0 or not distinct, or we do not support the head.
    """
    names = values.get("architectures")
    architecture = str(names[0]) if isinstance(names, list) and names else ""
    folder = os.path.dirname(source)
    of_class = [
        name
        for name, head in CLASSES.items()
        if head.architecture == architecture and head.is_in(folder)
    ]
    if not of_class or any(map(policy.ignores, (HEAD, *HEADS))):
        return None, ()
    has_labels = bool(CLASSES[of_class[0]].label_counts)
    labels = _labels(values, source) if has_labels else ()
    kind = of_class[0]
    if CLASSES[kind].problem_type:
        kind = _kind_of_problem(of_class, values, labels, source)
    stated = {"dropout": values.get("classifier_dropout_prob", 0.1)}
    if has_labels:
        stated |= _settings_of_labels(CLASSES[kind], labels, source)
    stated |= CLASSES[kind].settings_in(folder)
    written = _written(values.get(SECTION), KINDS[kind], stated)
    task: Any = settings.from_dict(KINDS[kind].settings, {**written, **stated}, f"{source}: task.")
    task = dataclasses.replace(task, **task.limits(config.max_positions))
    return task, tuple(k for k in CLASSES[kind].open_settings if k not in written)


def _written(section: Any, kind: Kind, stated: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings that we wrote, unless they are of another kind or of other labels."""
    if not isinstance(section, Mapping) or section.get("kind") != kind.name:
        return {}
    labels = list(stated.get("labels", ()))

    def is_of_labels(value: Any) -> bool:
        is_same = section.get("labels") == labels
        return is_same and isinstance(value, list) and len(value) == len(labels)

    per_label = CLASSES[kind.name].per_label
    return {k: v for k, v in section.items() if k not in per_label or is_of_labels(v)}


def _settings_of_labels(
    head: TransformersHead, labels: tuple[str, ...], source: str
) -> dict[str, Any]:
    try:
        return head.settings_of(labels)
    except ValueError as error:
        raise InputError(
            f"{source!r}: `id2label` must be {error}. Received: {', '.join(labels)}. To read only "
            "the encoder, pass --ignore=head --allow_missing=mlm_head,pair_head,pooler."
        ) from None


def in_our_order(
    tensors: Weights, values: Mapping[str, Any], task: TaskSettings | None, source: str
) -> Weights:
    """Return their tensors with the rows of the head in the order of our labels.

    `run_ner.py` of transformers sorts its tags: all B before all I, and O last.
    """
    if not (head := class_of(task)).label_counts:
        return tensors
    labels, ours = _labels(values, source), head.labels(task)
    if {*labels} != {*ours}:  # a number's label has any name
        return tensors
    rows, ordered = [labels.index(label) for label in ours], dict(tensors)
    for name in (f"{head.layer}.weight", f"{head.layer}.bias"):
        if name in ordered and len(ordered[name]) == len(labels):
            ordered[name] = ordered[name][rows]
    return ordered


def _kind_of_problem(
    kinds: list[str], values: Mapping[str, Any], labels: tuple[str, ...], source: str
) -> str:
    """Return which of the kinds of one class the `problem_type`, labels and keys mean."""
    problem_type = values.get("problem_type")
    if problem_type is None:  # the rule that transformers applies in training
        problem_type = "regression" if len(labels) == 1 else "single_label_classification"
    found = [
        kind
        for kind in kinds
        if CLASSES[kind].problem_type == problem_type
        and len(labels) in CLASSES[kind].label_counts
        and CLASSES[kind].config_keys.keys() <= values.keys()
    ]
    if found:  # of two, the one that a key of its own states
        return max(found, key=lambda kind: len(CLASSES[kind].config_keys))
    *possible, last = dict.fromkeys(
        f"{CLASSES[kind].problem_type} with {_shown(CLASSES[kind].label_counts)}" for kind in kinds
    )
    raise InputError(
        f"{source!r}: `problem_type` must be {', '.join(possible)} or {last}; other heads are not "
        f"supported. Received: {problem_type!r} with {len(labels)}. To read only the encoder, pass "
        "--ignore=head --allow_missing=mlm_head,pair_head."
    )


def _shown(counts: range) -> str:
    """Return numbers of labels in words."""
    return f"{counts.start} or more labels" if len(counts) > 1 else f"{counts.start} label"


def _labels(values: Mapping[str, Any], source: str) -> tuple[str, ...]:
    """Return their `id2label` in order, or else transformers' default names for `num_labels`."""
    numbered = values.get("id2label")
    if numbered is None:
        count = values.get("num_labels", values.get("_num_labels", 2))
        if type(count) is not int or not 0 < count <= MOST_LABELS:
            raise InputError(
                f"{source!r}: `num_labels` must be a number from 1 to {MOST_LABELS:,}. "
                f"Received: {shortened(count)}."
            )
        return tuple(f"LABEL_{number}" for number in range(count))
    if not isinstance(numbered, Mapping):
        raise InputError(
            f"{source!r}: `id2label` must be an object. Received: {shortened(numbered)}."
        )
    keys = [str(number) for number in range(len(numbered))]
    if sorted(numbered) != sorted(keys) or len(set(map(str, numbered.values()))) < len(keys):
        raise InputError(
            f"{source!r}: `id2label` must give each number from 0 to {len(keys) - 1} a different "
            f"label. Received: {shortened(numbered)}. Correct the file."
        )
    return tuple(str(numbered[key]) for key in keys)


def mismatch_policy(policy: MismatchPolicy, task: TaskSettings | None) -> MismatchPolicy:
    """Return `policy`, which also allows a pooler to be missing that the kind does not use."""
    if class_of(task).has_pooler:
        return policy
    return dataclasses.replace(policy, allow_missing=(*policy.allow_missing, "pooler"))


def from_ours(weights: Weights, task: TaskSettings | None) -> Weights:
    """Return our weights for their class, without a pooler if it has none."""
    head = class_of(task)
    if not head.has_pooler:
        weights = {n: v for n, v in weights.items() if not n.startswith(OPTIONAL["pooler"])}
    return head.to_theirs(weights, task)
