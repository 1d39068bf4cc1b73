"""Notes on what a model does not see of its examples."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from albert_tf.tasks.features import Features
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.unknown_pieces import UnknownPieces


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
