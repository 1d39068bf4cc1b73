"""The kind `embedding`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.graph.onnx.encoder import EncoderGraph
from albert_tf.graph.onnx.graph import Outputs
from albert_tf.models.checkpoints import is_saved_model
from albert_tf.models.encoder import load_encoder
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.embedding.examples import SearchExample
from albert_tf.tasks.embedding.features import featurize_embeddings
from albert_tf.tasks.embedding.model import EmbeddingModel, EmbeddingSettings
from albert_tf.tasks.embedding.module import EmbeddingModule
from albert_tf.tasks.embedding.sentence_transformers import SentenceTransformers
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.features import Features
from albert_tf.tasks.kind import ExportSettings, Kind
from albert_tf.text.tokenizer import Tokenizer

RANKED = 100  # documents of a prediction


class Embedding(Kind[EmbeddingSettings]):
    """A vector for each text, whose cosines say how alike texts are."""

    name = "embedding"
    options = ("precision", "depths", "pooling")
    settings, model, example, features = EmbeddingSettings, EmbeddingModel, TextExample, Features
    takes_strings = True
    transformers = SentenceTransformers()
    takes_encoders = True

    def load(self, path: str, unroll: bool = True) -> EmbeddingModel:
        """Load the model of a run or, of any other path, its encoder with the mean as pooling."""
        if not is_saved_model(path) and RunDir(path).kind() == self.name:
            model = super().load(path, unroll)
            assert isinstance(model, EmbeddingModel)
            return model
        encoder = load_encoder(path, unroll=unroll)
        task = EmbeddingSettings(seq_length=encoder.config.max_positions)
        model = EmbeddingModel(encoder, task).create_weights()
        model.is_untrained = True
        return model

    featurize = staticmethod(featurize_embeddings)

    def decode(
        self,
        outputs: np.ndarray,
        features: Features,
        examples: Sequence[TextExample],
        task: EmbeddingSettings,
    ) -> list[dict[str, Any]]:
        """Return a dict for each example.

        A text has its vector as `embedding`; a pair the cosine of its texts as `score`; a query as
        `ranking` the ids of the best documents with their cosines, the best first.
        """
        if examples and isinstance(examples[0], SearchExample):
            queries, documents = outputs[: len(examples)], outputs[len(examples) :]
            return [
                {"ranking": ranking(example, documents @ query)}
                for example, query in zip(examples, queries, strict=True)
            ]
        vectors = outputs if outputs.ndim == 3 else outputs[:, np.newaxis]  # [N, P, D]
        return [
            {"embedding": row[0].tolist()}
            if example.second is None
            else {"score": float(np.dot(row[0].astype(np.float64), row[1].astype(np.float64)))}
            for row, example in zip(vectors, examples, strict=True)
        ]

    def average(self, members: Sequence[np.ndarray]) -> np.ndarray:
        """Return the members' vectors side by side, of length 1: their cosine is the mean."""
        return np.concatenate(members, axis=-1) / np.sqrt(len(members))

    def module(
        self, model: EmbeddingModel, tokenizer: Tokenizer, values: ExportSettings
    ) -> EmbeddingModule:
        """Return the module to save."""
        return EmbeddingModule(_pooled(model, values), tokenizer, values.depths)

    def onnx_outputs(
        self, encoder: EncoderGraph, model: EmbeddingModel, values: ExportSettings
    ) -> Outputs:
        """Add `embedding`, float32 [B, D]."""
        pooling = _pooled(model, values).task.pooling
        vectors = encoder.pooled() if pooling == "cls" else encoder.mean()
        if model.head is not None:
            vectors = encoder.affine(vectors, "head", model.head)
        vectors = encoder.normalized(vectors)
        return {"embedding": (vectors, np.float32, ["B", model.dimension])}


def ranking(search: TextExample, scores: np.ndarray) -> list[list[Any]]:
    """Return ids and scores of the `RANKED` best documents of a search, without the query itself.

    They are in the order of trec_eval: of equal scores, the greater id comes first.
    """
    assert isinstance(search, SearchExample)
    ids = search.corpus.ids
    count = min(RANKED + 1, len(ids))
    least = np.partition(scores, len(ids) - count)[len(ids) - count]
    rows = np.flatnonzero(scores >= least).tolist()
    rows.sort(key=lambda row: (scores[row], ids[row]), reverse=True)
    found = [[ids[row], float(scores[row])] for row in rows[:count]]
    return [each for each in found if each[0] != search.itself][:RANKED]


def _pooled(model: EmbeddingModel, values: ExportSettings) -> EmbeddingModel:
    """Return the model with the pooling of an export.

    Raises:
      InputError: it was trained with another one.
    """
    if values.pooling in (None, model.task.pooling):
        return model
    if not model.is_untrained:
        raise InputError(
            f"--pooling must be that of the run, {model.task.pooling}, with which it was trained. "
            f"Received: {values.pooling}. Leave it out."
        )
    model.task = model.task.replace(pooling=values.pooling)
    return model
