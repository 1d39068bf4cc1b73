"""The examples that a run uses: a dev part from the training examples, and a limited number.

Examples are chosen by a hash of their content. The choice therefore depends neither on the order of
the rows nor on the seed of the run.
"""

import collections
import contextlib
import dataclasses
import hashlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.runtime.files.compression import without_suffix
from albert_tf.tasks.embedding.examples import ContrastExample
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.task_settings import TaskSettings
from finetuning.datasets.dataset import Dataset, Source
from finetuning.datasets.embeddings.teacher_vectors import StoredVector
from finetuning.datasets.near_duplicates import hosts

_MIN_DOCUMENTS = 5  # that are divided; fewer are too uneven


class InDocuments(list[Any]):
    """Examples from documents, which `split` keeps whole if there are enough.

    Attributes:
      documents: the number of each example's document.
    """

    def __init__(self, examples: Iterable[Any], documents: Sequence[int]) -> None:
        super().__init__(examples)
        self.documents = documents


class Connected(list[TextExample]):
    """Pairs of texts, of which `split` keeps together those that share one, also through others."""

    def keys(self) -> list[str]:
        """Return the name of each pair's group: its first text in alphabetical order."""
        host: dict[str, str] = {}

        def root(text: str) -> str:
            while host.setdefault(text, text) != text:
                host[text] = text = host[host[text]]
            return text

        for pair in self:
            least, other = sorted((root(pair.first), root(pair.second or pair.first)))
            host[other] = least
        return [root(pair.first) for pair in self]

    @staticmethod
    def without(pairs: Sequence[TextExample], others: Sequence[TextExample]) -> list[TextExample]:
        """Return the pairs without negatives that are texts of other pairs."""
        texts = {text for pair in others for text in (pair.first, pair.second)}
        rest = []
        for pair in pairs:
            if isinstance(pair, ContrastExample) and not texts.isdisjoint(pair.negatives):
                kept = tuple(text for text in pair.negatives if text not in texts)
                pair = dataclasses.replace(pair, negatives=kept)
            rest.append(pair)
        return rest


def with_dev(
    source: Source, train: Sequence[Any], dev: Mapping[str, Callable[[], Sequence[Any]]]
) -> tuple[Sequence[Any], dict[str, Sequence[Any]]]:
    """Return the training examples and the dev parts.

    With `dev_fraction`, the part `dev` is taken from the training examples.

    Args:
      source: the location of the examples.
      train: the examples of the training part.
      dev: name of a dev part -> function that reads it.

    Raises:
      InputNotFoundError: there is no dev part and no `dev_fraction`.
      InputError: there are both, or the training examples are too few to be divided.
    """
    fraction = source.reading.dev_fraction
    if not fraction:
        try:
            return train, {name: read() for name, read in dev.items()}
        except InputNotFoundError as error:
            raise InputNotFoundError(
                f"{error} Add it, or run finetuning.train with --dev_fraction=0.1, which uses a "
                "tenth of the training examples as the dev part."
            ) from None
    for name, read in dev.items():
        with contextlib.suppress(InputNotFoundError):
            count = len(read())
            raise InputError(
                f"--dev_fraction is only for data without a dev part. Received: {fraction}, and "
                f"data with {count:,} examples in {name}. Leave it out, or remove that part."
            )
    count = len(set(getattr(train, "documents", ())))
    if 1 < count < _MIN_DOCUMENTS:
        print(
            f"note: {count} documents are too few to keep each of them whole (at least "
            f"{_MIN_DOCUMENTS}), so the dev part has sentences of the same documents."
        )
    rest, held_out = split(train, fraction)
    shares = isinstance(train, Connected)
    if not (rest and held_out):
        raise InputError(
            f"--dev_fraction must leave examples in both parts. Received: {fraction}, which takes "
            f"{len(held_out):,} of {len(train):,} training examples. Pass another fraction"
            + (", or a dev part: pairs that share texts stay together." if shares else ".")
        )
    whole = ", whole documents" if count >= _MIN_DOCUMENTS else ""
    if shares:
        rest, before = Connected.without(rest, held_out), sum(len(each.texts) for each in rest)
        dropped = before - sum(len(each.texts) for each in rest)
        whole = ", which share no text with the others"
        whole += f" (of which {dropped:,} negatives are left out)" * bool(dropped)
    print(
        f"dev: {len(held_out):,} of {len(train):,} training examples{whole} "
        f"(--dev_fraction={fraction})"
    )
    return rest, {"dev": held_out}


def limited(source: Source, train: Sequence[Any]) -> Sequence[Any]:
    """Return at most `max_train_examples` examples, in their order.

    The examples for a number are among those for any larger number.
    """
    limit = source.reading.max_train_examples
    if limit is None:
        return train
    draws = [_draw(_content_of(example), "train") for example in train]
    chosen = sorted(range(len(train)), key=draws.__getitem__)[:limit]
    print(f"train: {len(chosen):,} of {len(train):,} examples (--max_train_examples={limit})")
    return _chosen(train, sorted(chosen))


def read_part(dataset: Dataset, source: Source, part: str, task: TaskSettings) -> Sequence[Any]:
    """Return the examples of a part for a run whose `task` section is known.

    If the dataset has no part `dev`, it is the one that the run took from the training examples.

    Raises:
      InputNotFoundError: there is no such part.
      InputError: `part` is the name of a file.
    """
    try:
        return dataset.read_part(source, part, task)
    except InputNotFoundError:
        name = os.path.splitext(without_suffix(part))[0]
        if name != part and os.path.isfile(os.path.join(source.data_dir or "", part)):
            raise InputError(
                "--part must be the name of a part, which is that of its file without the "
                f"extension. Received: {part!r}. Pass --part={name}."
            ) from None
        fraction = source.reading.dev_fraction
        if part != "dev" or not fraction:
            raise
    train = dataset.read_part(source, "train", task)
    _, dev = split(train, fraction)
    print(
        f"dev: {len(dev):,} of {len(train):,} training examples, as for the run "
        f"(--dev_fraction={fraction})",
        file=sys.stderr,
    )
    return dataset.measured(dev)


def split(
    examples: Sequence[Any], fraction: float, purpose: str = "dev"
) -> tuple[list[Any], list[Any]]:
    """Return the remaining examples, and about the `fraction` that is held out.

    Examples with the same text, pair of texts, context or query are in the same part; without a
    context, those with the same question. Of `Connected` pairs, those that share texts are, and
    more than the fraction of all pairs are never held out together. Of at least 5 documents, about
    the fraction is held out, at least one, and of the texts of each label of a classifier the
    fraction, to within one text. The choices for different purposes are independent.
    """
    texts = [example.source for example in examples]
    documents = getattr(examples, "documents", ())
    if isinstance(examples, Connected):
        keys = examples.keys()
        most = max(1.0, fraction * len(examples))
        small = {key for key, count in collections.Counter(keys).items() if count <= most}
        chosen = [key in small and _draw(key, purpose) < fraction for key in keys]
    elif len(set(documents)) >= _MIN_DOCUMENTS:
        held_out = _held_out(documents, texts, fraction, purpose)
        chosen = [number in held_out for number in documents]
    elif all(isinstance(each, TextExample) and type(each.label) is int for each in examples):
        of_labels = _of_each_label(examples, fraction, purpose)
        chosen = [text in of_labels for text in texts]
    else:
        chosen = [_draw(text, purpose) < fraction for text in texts]
    parts = [[row for row, is_out in enumerate(chosen) if is_out == x] for x in (False, True)]
    return _chosen(examples, parts[0]), _chosen(examples, parts[1])


def _chosen(examples: Sequence[Any], rows: Sequence[int]) -> list[Any]:
    """Return some examples, with their documents if they have some."""
    chosen = [examples[row] for row in rows]
    if isinstance(examples, InDocuments):
        return InDocuments(chosen, [examples.documents[row] for row in rows])
    return chosen


def groups(examples: Sequence[Any]) -> list[int]:
    """Return the number of each example's group, of which cross-validation must not divide any.

    Groups are documents if there are at least 5, otherwise near-duplicates: see `hosts` in
    `finetuning.datasets.near_duplicates`.
    """
    documents = getattr(examples, "documents", ())
    if len(set(documents)) >= _MIN_DOCUMENTS:
        return list(documents)
    texts = [example.source for example in examples]
    names = hosts([[text] if isinstance(text, str) else text for text in texts])
    number = {name: i for i, name in enumerate(sorted(set(names)))}
    return [number[name] for name in names]


def _held_out(
    documents: Sequence[int], texts: Sequence[Any], fraction: float, purpose: str
) -> set[int]:
    """Return the numbers of the documents that are held out."""
    whole: dict[int, list[Any]] = {}
    for number, text in zip(documents, texts, strict=True):
        whole.setdefault(number, []).append(text)
    draws = {number: _draw(every, purpose) for number, every in whole.items()}
    last = sorted(draws.values())[max(1, round(fraction * len(whole))) - 1]
    return {number for number, draw in draws.items() if draw <= last}


def _of_each_label(examples: Sequence[Any], fraction: float, purpose: str) -> set[Any]:
    """Return the texts that are held out: of n with a label, n * fraction, rounded up or down.

    A text with several labels counts for the lowest one. Whether a number is rounded up is drawn.
    """
    labels: dict[Any, int] = {}
    for example in examples:
        labels[example.source] = min(example.label, labels.get(example.source, example.label))
    ranked = sorted(labels, key=lambda text: _draw(text, purpose))
    counts = collections.Counter(labels.values())
    left = {n: math.floor(counts[n] * fraction + _draw(n, purpose)) for n in counts}
    held_out = set()
    for text in ranked:
        if left[labels[text]]:
            left[labels[text]] -= 1
            held_out.add(text)
    return held_out


def _content_of(example: Any) -> dict[str, Any]:
    """Return the fields by which an example is compared, without a teacher's vector."""
    fields = [field.name for field in dataclasses.fields(example) if field.compare]
    content = {name: getattr(example, name) for name in fields}
    if isinstance(content.get("label"), StoredVector):
        content["label"] = None
    return content


def _draw(value: Any, purpose: str) -> float:
    """Return a number in [0, 1), a function of the arguments that is the same on every machine."""
    content = json.dumps(value, default=repr).encode()
    digest = hashlib.blake2b(content, digest_size=6, person=purpose.encode())
    return int.from_bytes(digest.digest(), "big") / 2**48
