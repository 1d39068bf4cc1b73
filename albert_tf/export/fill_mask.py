"""Filling blanks in Python, with the graph that is exported."""

from collections.abc import Iterable

import tensorflow as tf

from albert_tf.models.pretrainer import load_pretrainer
from albert_tf.runtime.arguments import list_of
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.pretrained.fill_mask import MASK, FillMaskModule
from albert_tf.text.tokenizer import load_tokenizer


class FillMask:
    """A pretrained model, ready to fill blanks; see `load_fill_mask`."""

    def __init__(self, path: str, top_k: int = 5) -> None:
        model, tokenizer = load_pretrainer(path), load_tokenizer(path)
        if not 1 <= top_k <= tokenizer.vocab_size:
            raise InputError(
                f"top_k must be between 1 and {tokenizer.vocab_size:,}, the number of pieces. "
                f"Received: {top_k}."
            )
        self._module = FillMaskModule(model, tokenizer, top_k)

    def __call__(self, texts: Iterable[str]) -> list[list[list[tuple[str, float]]]]:
        """Return, for each text and each [MASK] in it, pieces with probabilities, best first.

        A piece that begins with U+2581 begins a word. Of a text that is too long for the model, it
        sees a window around the first mask; masks outside the window have an empty list.

        Raises:
          InputError: `texts` is a single string or a table, or contains other values than strings,
            or no text has a mask.
        """
        texts = list_of((str, bytes), texts, "texts must be a list of strings.")
        if texts and not any(MASK in tf.compat.as_text(text) for text in texts):
            raise InputError(
                f"texts must have blanks, written as {MASK}. Received: {texts[0][:80]!r}."
            )
        outputs = self._module.serve(tf.constant(texts, tf.string))
        pieces, probabilities = (outputs[name].numpy() for name in ("pieces", "probabilities"))
        answers = []
        for text, *row in zip(texts, pieces, probabilities, strict=True):
            masks = [
                [(piece.decode(), float(p)) for piece, p in zip(*mask, strict=True) if piece]
                for mask in zip(*row, strict=True)
            ]
            count = tf.compat.as_text(text).count(MASK)
            answers.append([*masks, *([] for _ in range(count))][:count])
        return answers


def load_fill_mask(path: str, top_k: int = 5) -> FillMask:
    """Load a pretrained model to fill blanks.

    >>> fill = albert_tf.load_fill_mask("albert-mini-en")
    >>> fill(["The capital of France is [MASK]."])

    returns a list of masks for each text, and for each mask `top_k` pairs of a piece and its
    probability, best first.

    Args:
      path: a pretraining run, a converted folder or the name of an included model.
      top_k: the number of pieces predicted for each mask.

    Raises:
      InputNotFoundError: there is no model or no vocabulary at `path`.
      InputError: `path` is an export or a fine-tuned run, which cannot fill blanks, or `top_k` is
        out of range.
    """
    return FillMask(path, top_k)
