"""Embedding of texts with a run, an encoder or an export."""

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.models.checkpoints import is_saved_model, load_exported_config
from albert_tf.models.config import EXTRAS
from albert_tf.runtime import pretrained
from albert_tf.runtime.arguments import list_of, positive
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.embedding.kind import Embedding
from albert_tf.tasks.embedding.model import EmbeddingSettings
from albert_tf.tasks.features import pack
from albert_tf.tasks.text_functions import Reloadable, bucketed, in_batches, load_export
from albert_tf.text.graph_tokenizer import strings
from albert_tf.text.tokenizer import load_tokenizer

# Texts to vectors [N, D], the settings, D, and whether the encoder is untrained.
Parts = tuple[Callable[[list[str]], tf.Tensor], EmbeddingSettings, int, bool]

# Options of sentence-transformers with the only values that an embedder has.
_THEIRS = {
    "convert_to_numpy": True,
    "convert_to_tensor": False,
    "output_value": "sentence_embedding",
    "precision": "float32",
    "device": None,
    "truncate_dim": None,
}


class Embedder(Reloadable):
    """Texts to vectors of length 1; see `load_embedder`.

    Attributes:
      task: the `task` section of the run, or the defaults.
      is_untrained: True for an encoder that was not trained for embeddings.
      dimension: D, the width of the vectors.
    """

    def __init__(self, path: str) -> None:
        given, path = path, pretrained.locate(path)
        exported = _exported(path) if is_saved_model(path) else None
        self._embed, self.task, self.dimension, self.is_untrained = exported or _loaded(path)
        super().__init__(given)
        if self.is_untrained:
            print(
                f"note: {path} was not trained for embeddings: its vectors are made of hidden "
                "states, whose cosines are high for any two texts. Train it with finetuning.train "
                "--task=embedding.",
                file=sys.stderr,
            )

    def __call__(
        self,
        texts: Iterable[str],
        batch_size: int = 256,
        prompt: str | None = None,
        show_progress_bar: bool | None = None,
    ) -> np.ndarray:
        """Return the vectors of texts, float32 [N, D], in their order.

        Args:
          texts: a list or another iterable of strings.
          batch_size: the number of texts, of similar length, that are handed on together; those
            whose lengths differ by more than an eighth are computed one after the other.
          prompt: what to put before each text; None for nothing.
          show_progress_bar: show the progress. None: for more than 1,000 texts.

        Raises:
          InputError: `texts` is a single string, or contains other values, or `batch_size` is not
            positive.
        """
        texts = list_of(str, texts, "an embedder takes a list of strings.")
        batch_size = positive("batch_size", batch_size)
        if not texts:
            return np.zeros([0, self.dimension], np.float32)
        return in_batches(
            lambda batch: self._embed([(prompt or "") + text for text in batch]).numpy(),
            texts,
            batch_size,
            show_progress_bar,
        )

    def encode(
        self,
        sentences: str | Iterable[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        normalize_embeddings: bool = True,
        **options: Any,
    ) -> np.ndarray:
        """Return the vectors of texts, or the vector [D] of a single string.

        `options` are those of a call, or of sentence-transformers with a value that changes
        nothing here, such as `convert_to_numpy=True`. `prompt_name` is `query` or `document`, for
        the prompts of the run; a `prompt` other than None replaces it, and "" is none. The vectors
        have length 1 with either value of `normalize_embeddings`, as with a model whose last module
        normalizes.

        Raises:
          InputError: as a call; or an option has another value.
        """
        del normalize_embeddings
        for name in _THEIRS.keys() & options.keys():
            if (value := options.pop(name)) != _THEIRS[name]:
                raise InputError(
                    f"`{name}` must be {_THEIRS[name]!r}: an embedder returns NumPy arrays of "
                    f"float32, a vector for each text. Received: {value!r}. Leave it out."
                )
        if prompt is None and prompt_name is not None:
            prompts = {"query": self.task.query_prompt, "document": self.task.passage_prompt}
            if prompt_name not in prompts:
                raise InputError(
                    "`prompt_name` must be query or document. Received: "
                    f"{prompt_name!r}. Pass the text as `prompt`."
                )
            prompt = prompts[prompt_name]
        if isinstance(sentences, str):
            return self([sentences], prompt=prompt, **options)[0]
        return self(sentences, prompt=prompt, **options)

    def encode_query(
        self, sentences: str | Iterable[str], *, prompt_name: str | None = None, **options: Any
    ) -> np.ndarray:
        """Do the same as `encode`, by default with the prompt of queries."""
        return self.encode(sentences, prompt_name=prompt_name or "query", **options)

    def encode_document(
        self, sentences: str | Iterable[str], *, prompt_name: str | None = None, **options: Any
    ) -> np.ndarray:
        """Do the same as `encode`, by default with the prompt of passages."""
        return self.encode(sentences, prompt_name=prompt_name or "document", **options)

    def embed_documents(self, texts: Iterable[str]) -> list[list[float]]:
        """Return the vectors of passages as lists, as LangChain's interface has it."""
        return self(texts, prompt=self.task.passage_prompt).tolist()

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a query as a list."""
        return self([text], prompt=self.task.query_prompt)[0].tolist()


def _exported(path: str) -> Parts | None:
    """Return the parts of an export of this kind, None if it is of another kind."""
    loaded = load_export(path)
    signature = loaded.signatures.get("serving_default")
    if signature is None or {*signature.structured_outputs} != {Embedding.name}:
        return None
    run, kind = RunDir(os.path.join(path, EXTRAS)), Embedding()
    is_untrained = run.kind() != kind.name  # a plain encoder was exported
    longest = load_exported_config(path).max_positions
    task = EmbeddingSettings(seq_length=longest) if is_untrained else kind.settings_of(run)
    width = int(signature.structured_outputs["embedding"].shape[1])

    def embed(texts: list[str]) -> tf.Tensor:
        return loaded.signatures["serving_default"](text=strings(texts))["embedding"]

    return embed, task, width, is_untrained


def _loaded(path: str) -> Parts:
    """Return the parts of a run, or of an encoder.

    The tokenizer is the one in Python: that of tensorflow_text is lost when a program calls
    `tf.random.set_seed`.
    """
    model, tokenizer = Embedding().load(path), load_tokenizer(path)
    task = model.task

    vectors = bucketed(model, task.seq_length, [model.dimension])

    def embed(texts: list[str]) -> tf.Tensor:
        rows = tokenizer.encode_batch(texts)
        return vectors(pack(rows, None, task.seq_length, tokenizer.special))

    return embed, task, model.dimension, model.is_untrained


def load_embedder(path: str | os.PathLike[str]) -> Embedder:
    """Load a model that turns texts into vectors of length 1.

    >>> embedder = albert_tf.load_embedder("albert-mini-en-embed")
    >>> embedder(["The river flooded.", "Ships sail."]).shape
    (2, 384)

    Args:
      path: `albert-mini-en-embed`, a run of `finetuning.train --task=embedding`, an export of the
        kind `embedding`, or any encoder, which is not trained for this: a pretraining run, a
        converted folder, an exported encoder or `albert-mini-en`.

    Raises:
      InputNotFoundError: there is no model at `path`.
      InputError: `path` is an export of another kind, or a file is damaged.
    """
    return Embedder(os.fspath(path))
