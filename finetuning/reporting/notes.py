"""Notes on what a model does not see of its examples, and on examples that repeat others."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from albert_tf.runtime.errors import shortened
from albert_tf.tasks.features import Features
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.unknown_pieces import UnknownPieces
from finetuning.datasets.dataset import Data
from finetuning.kinds.registry import FINETUNING


def unknown_pieces(
    features: Features, examples: Iterable[Any], tokenizer: Tokenizer
) -> UnknownPieces:
    """Return the unknown pieces of examples and their features."""
    texts = itertools.chain.from_iterable(example.texts for example in examples)
    return UnknownPieces.of(features.sequences.ids, texts, tokenizer)


def notes_of(
    features: Features, examples: Iterable[Any], tokenizer: Tokenizer, chosen: str
) -> Iterator[str]:
    """Yield notes on long examples and unknown pieces, one line each; see `UnknownPieces.note`."""
    yield from features.notes()
    if note := unknown_pieces(features, examples, tokenizer).note(chosen):
        yield note


def repeated(data: Data) -> Iterator[str]:
    """Yield notes on dev examples that are in training too, and on contradictory training ones."""
    kind = FINETUNING[data.task.kind]
    answers: dict[tuple[str, ...], Any] = {}
    contradictory = set()
    for example in data.train:
        answer = kind.answer_of(example)
        if answers.setdefault(example.texts, answer) != answer and kind.has_one_answer:
            contradictory.add(example.texts)
    if contradictory:
        first = shortened(" | ".join(min(contradictory)))
        yield (
            f"{len(contradictory):,} training texts occur with different labels, such as {first}"
        )
    # A search has a query alone, and in training it is the first of several texts.
    known = {*answers, *(texts[:1] for texts in answers)}
    for name, examples in data.dev.items():
        if shared := sum(example.asked in known for example in examples):
            yield (
                f"{shared:,} of {len(examples):,} {name} examples are training examples too, so "
                "that its scores are too high"
            )
