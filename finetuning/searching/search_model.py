"""The model of an index: texts to vectors, with the prompts of its settings."""

import dataclasses
import functools
import hashlib
import os
import sys

import numpy as np

import albert_tf
from albert_tf.runtime import pretrained
from albert_tf.runtime.errors import InputError

_SPECIAL = 2  # pieces that a model adds to a text
_SAMPLE = 200  # passages
_INPUT_SETTINGS = ("seq_length", "pooling", "projection", "passage_prompt")


class SearchModel:
    """A model for searches.

    Attributes:
      name: the name of an included model, or the absolute path.
      fingerprint: 16 hex digits that change with all that determines the vectors of passages.
      width: D, the width of the vectors.

    Raises:
      InputNotFoundError: there is no model at `path`.
      InputError: it makes no vectors, or is damaged.
    """

    def __init__(self, path: str, batch_size: int = 1024) -> None:
        located = pretrained.locate(path)
        self.name = pretrained.name_of(path)
        self._embedder = albert_tf.load_embedder(located)
        self._tokenizer = albert_tf.load_tokenizer(located)
        self._batch_size, self._located = batch_size, located
        self._task, self._has_passages = self._embedder.task, False
        self.width: int = self._embedder.dimension

    @functools.cached_property
    def fingerprint(self) -> str:
        """See the class."""
        from albert_tf.models.checkpoints import (
            is_saved_model,
            load_config,
            weights_fingerprint,
        )

        model = load_config(self._located).replace(hidden_dropout=0.0, attention_dropout=0.0)
        task = dataclasses.asdict(self._task)
        parts = [weights_fingerprint(self._located), self._tokenizer.fingerprint, repr(model)]
        parts += [repr(task[name]) for name in _INPUT_SETTINGS]
        if self._embedder.is_untrained and is_saved_model(self._located):  # its graph has a pooling
            with open(os.path.join(self._located, "saved_model.pb"), "rb") as file:
                parts.append(hashlib.sha256(file.read()).hexdigest())
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    def passages(self, texts: list[str]) -> np.ndarray:
        """Return the vectors of passages, float32 [N, D]; print how many of the first are cut."""
        if not self._has_passages:
            self._has_passages = True
            sample = texts[:_SAMPLE]
            cut = sum(self._is_cut(self._task.passage_prompt + text) for text in sample)
            if cut:
                print(
                    f"note: of the first {len(sample)} passages, {cut} are longer than the "
                    f"{self._task.seq_length} pieces that the model reads: the rest of them is "
                    "found by words only. A smaller --max_words avoids it.",
                    file=sys.stderr,
                )
        return self._embedder.encode_document(
            texts, batch_size=self._batch_size, show_progress_bar=False
        )

    def query(self, text: str) -> np.ndarray:
        """Return the vector of a query, float32 [D].

        Raises:
          InputError: the vector is not of finite numbers.
        """
        vector = self._embedder.encode_query(text)
        if not np.isfinite(vector).all():
            raise InputError(
                f"--model={self.name} must give vectors of finite numbers. Received: another one, "
                f"for the query {text[:80]!r}. Pass another model, or --by=words."
            )
        return vector

    def note(self, query: str) -> str:
        """Return a note if the model does not read all of a query, or else an empty string."""
        if not self._is_cut(self._task.query_prompt + query):
            return ""
        return (
            f"The query is longer than the {self._task.seq_length} pieces that the model reads: "
            "its vector leaves out the rest. Ask with fewer words."
        )

    def _is_cut(self, text: str) -> bool:
        return len(self._tokenizer.encode(text)) + _SPECIAL > self._task.seq_length
