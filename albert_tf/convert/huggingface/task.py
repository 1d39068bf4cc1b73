"""The heads of transformers' fine-tuned models, and the task settings in their config.json.

Their files contain the class, the labels and the dropout. The rest of our `task` section (single
texts or pairs, lengths) is stored under our own key, which transformers keeps but ignores.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from albert_tf.convert.bundle import HEAD, OPTIONAL, MismatchPolicy, Weights
from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import settings
from albert_tf.runtime.errors import InputError, shortened
from albert_tf.tasks.kinds import KINDS, length_limits

_Change: TypeAlias = Callable[[np.ndarray], np.ndarray]
SECTION = "albert_tf_task"
_MOST_LABELS = 2**20
_OF_TEXTS = "AlbertForSequenceClassification"
_OF_TOKENS = "AlbertForTokenClassification"
ARCHITECTURES = {  # kind -> their class
    "classifier": _OF_TEXTS,
    "multi_label": _OF_TEXTS,
    "regressor": _OF_TEXTS,
    "span": "AlbertForQuestionAnswering",
    "multiple_choice": "AlbertForMultipleChoice",
    "token_classifier": _OF_TOKENS,
}
_WITHOUT_POOLER = ("span", "token_classifier")
_PROBLEM_TYPES = {  # kind -> Hugging Face's name
    "classifier": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regressor": "regression",
}
HEADS = ("classifier.", "qa_outputs.")  # prefixes of their heads' weights
# Task keys that a folder made elsewhere does not state and that a user may want to set.
_OPEN = (
    "pair",
    "seq_length",
    "num_choices",
    "qa_length",
    "query_length",
    "doc_stride",
    "max_answer_length",
    "n_best",
)


def check(task: Any) -> list[str]:
    """Return notes on what their class for a task loses.

    Raises:
      InputError: they have no class for the task.
    """
    if task is None:
        return []
    if getattr(task, "answerable", False):
        raise InputError(
            "transformers has no class for the joint head of SQuAD 2.0. Received: a run with "
            "`task.answerable` true. Convert a run fine-tuned with --task=squad1, serve this one "
            "with albert_tf.export, or drop its head with --ignore=head "
            "--allow_missing=mlm_head,pair_head."
        )
    if task.kind not in ARCHITECTURES:
        raise InputError(
            f"transformers only has classes for the kinds {', '.join(ARCHITECTURES)}. Received: a "
            f"run of kind {task.kind!r}. Serve it with albert_tf.export, or drop its head with "
            "--ignore=head --allow_missing=mlm_head,pair_head."
        )
    if task.kind in _WITHOUT_POOLER:
        return [
            f"{ARCHITECTURES[task.kind]} has no pooler, so yours is dropped. It does not affect "
            "the answers."
        ]
    return []


def to_json(task: Any) -> dict[str, Any]:
    """Return the keys of their config.json that describe a task."""
    values: dict[str, Any] = {
        "architectures": [ARCHITECTURES[task.kind]],
        "classifier_dropout_prob": task.dropout,
        SECTION: settings.to_dict(task),
    }
    if task.kind in _PROBLEM_TYPES:
        values |= _labels_to_json(getattr(task, "labels", ("LABEL_0",)))
        values["problem_type"] = _PROBLEM_TYPES[task.kind]
    if task.kind == "token_classifier":
        values |= _labels_to_json(task.tags)
    return values


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
    if architecture not in ARCHITECTURES.values() or any(map(policy.ignores, (HEAD, *HEADS))):
        return None, ()
    labels = _labels(values, source) if architecture in (_OF_TEXTS, _OF_TOKENS) else ()
    kind = _kind(architecture, values.get("problem_type"), labels, source)
    theirs = {"dropout": values.get("classifier_dropout_prob", 0.1)}
    if kind in ("classifier", "multi_label"):
        theirs["labels"] = labels
    if kind == "token_classifier":
        theirs |= _of_tags(labels, source)
    written = values.get(SECTION)
    if not isinstance(written, Mapping) or written.get("kind") != kind:
        written = {}
    thresholds = written.get("thresholds")
    is_same = written.get("labels") == list(labels)
    if not is_same or not isinstance(thresholds, list) or len(thresholds) != len(labels):
        written = {key: value for key, value in written.items() if key != "thresholds"}
    task: Any = settings.from_dict(KINDS[kind].task, {**written, **theirs}, f"{source}: task.")
    task = dataclasses.replace(task, **length_limits(task, config.max_positions))
    return task, tuple(k for k in _OPEN if hasattr(task, k) and k not in written)


def _of_tags(tags: tuple[str, ...], source: str) -> dict[str, Any]:
    """Return the `labels` and the `scheme` of a token classifier with these tags, in any order.

    Raises:
      InputError: the tags are of another scheme.
    """
    if "O" not in tags and not any(tag.startswith(("B-", "I-")) for tag in tags):
        return {"labels": tags, "scheme": "words"}
    labels = tuple(tag[2:] for tag in tags if tag.startswith("B-"))
    if {*tags} != {"O", *(f"{prefix}-{label}" for label in labels for prefix in "BI")}:
        raise InputError(
            f"{source!r}: `id2label` must be O, and B-X and I-X for each label X, or labels of "
            f"words without O. Received: {', '.join(tags)}. To read only the encoder, pass "
            "--ignore=head --allow_missing=mlm_head,pair_head,pooler."
        )
    return {"labels": labels, "scheme": "bio"}


def in_our_order(tensors: Weights, values: Mapping[str, Any], task: Any, source: str) -> Weights:
    """Return their tensors with the rows of a token classifier's head in the order of our tags.

    `run_ner.py` of transformers sorts its tags: all B before all I, and O last.
    """
    if task is None or task.kind != "token_classifier":
        return tensors
    tags = _labels(values, source)
    rows, ours = [tags.index(tag) for tag in task.tags], dict(tensors)
    for name in ("classifier.weight", "classifier.bias"):
        if name in ours and len(ours[name]) == len(tags):
            ours[name] = ours[name][rows]
    return ours


def _kind(architecture: str, problem_type: str | None, labels: tuple[str, ...], source: str) -> str:
    if architecture != _OF_TEXTS:
        return next(kind for kind, name in ARCHITECTURES.items() if name == architecture)
    is_single = len(labels) == 1
    if problem_type is None:  # the rule that transformers applies in training
        problem_type = "regression" if is_single else "single_label_classification"
    if problem_type == "regression" and is_single:
        return "regressor"
    if problem_type == "single_label_classification" and not is_single:
        return "classifier"
    if problem_type == "multi_label_classification":
        return "multi_label"
    raise InputError(
        f"{source!r}: `problem_type` must be regression with one label, "
        "single_label_classification with several or multi_label_classification with any number; "
        "other heads are not supported. Received: "
        f"{problem_type!r} with {len(labels)}. To read only the encoder, pass --ignore=head "
        "--allow_missing=mlm_head,pair_head."
    )


def _labels(values: Mapping[str, Any], source: str) -> tuple[str, ...]:
    """Return their `id2label` in order, or else transformers' default names for `num_labels`."""
    numbered = values.get("id2label")
    if numbered is None:
        count = values.get("num_labels", values.get("_num_labels", 2))
        if type(count) is not int or not 0 < count <= _MOST_LABELS:
            raise InputError(
                f"{source!r}: `num_labels` must be a number from 1 to {_MOST_LABELS:,}. "
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


def mismatch_policy(policy: MismatchPolicy, task: Any) -> MismatchPolicy:
    """Return `policy`, which also allows a pooler to be missing that the kind does not use."""
    if task is None or task.kind not in _WITHOUT_POOLER:
        return policy
    return dataclasses.replace(policy, allow_missing=(*policy.allow_missing, "pooler"))


def from_ours(weights: Weights, task: Any) -> Weights:
    """Return our weights for their class: no pooler it lacks, target units for regressors."""
    if task is None:
        return weights
    if task.kind in _WITHOUT_POOLER:
        return {n: v for n, v in weights.items() if not n.startswith(OPTIONAL["pooler"])}
    if task.kind == "regressor":  # center + scale (x W + b) = x (scale W) + (scale b + center)
        return _with_head(weights, lambda w: w * task.scale, lambda b: b * task.scale + task.center)
    return weights


def to_ours(weights: Weights, task: Any) -> dict[str, np.ndarray]:
    """Invert `from_ours`, exactly if scale is a power of two and center is 0."""
    if task is None or task.kind != "regressor":
        return dict(weights)
    return _with_head(weights, lambda w: w / task.scale, lambda b: (b - task.center) / task.scale)


def _with_head(weights: Weights, kernel: _Change, bias: _Change) -> dict[str, np.ndarray]:
    """Return the weights with `kernel` and `bias` applied in float64 to those of the head."""
    changed = dict(weights)
    for leaf, change in (("kernel", kernel), ("bias", bias)):
        exact: np.ndarray = weights[HEAD + leaf].astype(np.float64)
        changed[HEAD + leaf] = change(exact).astype(np.float32)
    return changed
