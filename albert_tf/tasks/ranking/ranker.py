"""Ranking of texts with a run or an export."""

import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.models.checkpoints import is_saved_model
from albert_tf.models.config import EXTRAS
from albert_tf.runtime import pretrained
from albert_tf.runtime.arguments import list_of, positive
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.features import pack
from albert_tf.tasks.ranking.kind import Ranking
from albert_tf.tasks.ranking.model import RankingSettings
from albert_tf.tasks.text_functions import Reloadable, bucketed, in_batches, load_export
from albert_tf.text.graph_tokenizer import strings
from albert_tf.text.tokenizer import load_tokenizer

_TRAIN = "Train one with finetuning.train --task=ranking."
# A query and texts to scores [N].
Score = Callable[[str, list[str]], tf.Tensor]


class Ranker(Reloadable):
    """The scores of texts for a query; see `load_ranker`.

    Attributes:
      task: the `task` section of the run.
    """

    def __init__(self, path: str) -> None:
        located = pretrained.locate(path)
        load = _exported if is_saved_model(located) else _loaded
        self._score, self.task = load(located)
        super().__init__(path)

    def __call__(
        self,
        query: str,
        texts: Iterable[str],
        batch_size: int = 256,
        show_progress_bar: bool | None = None,
    ) -> np.ndarray:
        """Return the score of each text for the query, float32 [N]; higher is better.

        They are logits, without bounds. Scores of one query can be compared; those of several only
        if the model was trained with `task.loss=pointwise`.

        Args:
          query: the query.
          texts: a list or another iterable of strings.
          batch_size: the number of texts, of similar length, that are handed on together.
          show_progress_bar: show the progress. None: for more than 1,000 texts.

        Raises:
          InputError: `query` is no string, `texts` is a single string or contains other values, or
            `batch_size` is not positive.
        """
        if not isinstance(query, str):
            raise InputError(f"`query` must be a string. Received: {str(query)[:80]!r}.")
        texts = list_of(str, texts, "a ranker takes a list of strings as `texts`.")
        batch_size = positive("batch_size", batch_size)
        if not texts:
            return np.zeros([0], np.float32)
        return in_batches(
            lambda batch: self._score(query, batch).numpy(), texts, batch_size, show_progress_bar
        )

    def rank(
        self, query: str, texts: Iterable[str], top_k: int | None = None, **options: Any
    ) -> list[tuple[int, float]]:
        """Return the index and the score of the best texts, the best first.

        In a tie, the earlier text comes first.

        Args:
          query: the query.
          texts: a list or another iterable of strings.
          top_k: the maximum number of texts to return; None for all.
          options: those of a call.

        Raises:
          InputError: as a call; or `top_k` is not positive.
        """
        top_k = None if top_k is None else positive("top_k", top_k)
        scores = self(query, texts, **options)
        best = np.argsort(-scores, kind="stable")[:top_k].tolist()
        return [(row, float(scores[row])) for row in best]


def _exported(path: str) -> tuple[Score, RankingSettings]:
    """Return the function and the settings of an export of this kind."""
    run, kind = RunDir(os.path.join(path, EXTRAS)), Ranking()
    if run.kind() != kind.name:
        raise InputError(f"{path!r} must be an export of kind {kind.name}. {_TRAIN}")
    loaded = load_export(path)

    def score(query: str, texts: list[str]) -> tf.Tensor:
        serve = loaded.signatures["serving_default"]
        return serve(query=strings([query]), candidates=strings(texts)[tf.newaxis])["scores"][0]

    return score, kind.settings_of(run)


def _loaded(path: str) -> tuple[Score, RankingSettings]:
    """Return the function and the settings of a run.

    The tokenizer is the one in Python: that of tensorflow_text is lost when a program calls
    `tf.random.set_seed`.
    """
    run, kind = RunDir(path), Ranking()
    if (other := run.kind()) != kind.name:
        raise InputError(
            f"{path!r} must be a run of kind {kind.name}. Received: a run of kind {other!r}. "
            f"{_TRAIN}"
        )
    model, tokenizer = kind.load(path), load_tokenizer(path)
    task = kind.settings_of(run)

    scores = bucketed(model, task.seq_length, [])

    def score(query: str, texts: list[str]) -> tf.Tensor:
        first = [tokenizer.encode(query)] * len(texts)
        second = tokenizer.encode_batch(texts)
        return scores(pack(first, second, task.seq_length, tokenizer.special))

    return score, task


def load_ranker(path: str | os.PathLike[str]) -> Ranker:
    """Load a model that scores texts for a query.

    >>> ranker = albert_tf.load_ranker("runs/answers")
    >>> texts = ["Ships sail.", "The river flooded the town in May."]
    >>> ranker("When was the flood?", texts).shape
    (2,)
    >>> [(best, score)] = ranker.rank("When was the flood?", texts, top_k=1)
    >>> texts[best] in texts
    True

    Args:
      path: a run of `finetuning.train --task=ranking`, or an export of it.

    Raises:
      InputNotFoundError: there is no model at `path`.
      InputError: `path` is a model of another kind, or a file is damaged.
    """
    return Ranker(os.fspath(path))
