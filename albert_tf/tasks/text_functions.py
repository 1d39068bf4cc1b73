"""What loaded models that are functions of texts share: reading exports, batches by length."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.models.checkpoints import damaged_export, readable
from albert_tf.training.progress import Progress

MANY = 1000  # texts, from which progress is shown


def load_export(path: str) -> Any:
    """Return the SavedModel at `path`, with the operations that exports need.

    Raises:
      InputError: it is damaged.
    """
    import tensorflow_text  # noqa: F401  registers the operations of exports

    with readable(path) as folder:
        try:
            return tf.saved_model.load(folder)
        except Exception as error:  # a damaged file can raise any type
            raise damaged_export(path, error) from None


def in_batches(
    compute: Callable[[list[str]], np.ndarray],
    texts: Sequence[str],
    batch_size: int,
    show_progress: bool | None = False,
) -> np.ndarray:
    """Return the results for texts, at least one, in their order; a batch has similar lengths.

    Args:
      compute: a list of texts -> [n, ...].
      texts: the texts.
      batch_size: the number of texts that are computed together.
      show_progress: show the progress. None: for more than `MANY` texts.
    """
    shows = len(texts) > MANY if show_progress is None else show_progress
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    parts = []
    with Progress("texts", len(texts)) if shows else contextlib.nullcontext() as progress:
        for begin in range(0, len(texts), batch_size):
            batch = [texts[row] for row in order[begin : begin + batch_size]]
            parts.append(compute(batch))
            if progress:
                progress.advance(len(batch))
    results: np.ndarray = np.concatenate(parts)
    return results[np.argsort(order)]
