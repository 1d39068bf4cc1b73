"""The kind `ranking`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.graph.onnx.encoder import EncoderGraph
from albert_tf.graph.onnx.graph import Outputs
from albert_tf.tasks.kind import ExportSettings, Kind
from albert_tf.tasks.ranking.examples import RankingExample
from albert_tf.tasks.ranking.features import RankingFeatures, featurize_queries
from albert_tf.tasks.ranking.model import RankingModel, RankingSettings
from albert_tf.tasks.ranking.module import RankingModule
from albert_tf.tasks.transformers_head import TransformersHead


class Ranking(Kind[RankingSettings]):
    """A score for each candidate of a query, by which they are ranked."""

    name = "ranking"
    settings, model, example, features = (
        RankingSettings,
        RankingModel,
        RankingExample,
        RankingFeatures,
    )
    module_class = RankingModule
    # A classifier of pairs with one label, as cross-encoders of sentence-transformers are.
    transformers = TransformersHead(
        "AlbertForSequenceClassification",
        "classifier",
        "regression",
        range(1, 2),
        has_names=False,
        open_settings=("seq_length", "num_candidates", "loss"),
        # Scores as they are, without the sigmoid that is their default.
        config_keys={
            "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}
        },
    )

    featurize = staticmethod(featurize_queries)

    def decode(
        self,
        outputs: np.ndarray,
        features: RankingFeatures,
        examples: Sequence[RankingExample],
        task: RankingSettings,
    ) -> list[dict[str, Any]]:
        """Return a dict for each query.

        `scores` are those of its candidates, and `ranking` the indices of the candidates, the best
        first. `outputs` are scores, of candidates [N] or of queries [N, per_unit].
        """
        counts = [len(example.candidates) for example in examples]
        if outputs.ndim == 2:
            return [answer(row[:count]) for row, count in zip(outputs, counts, strict=True)]
        return [answer(scores) for scores in np.split(outputs, np.cumsum(counts)[:-1])]

    def average(self, members: Sequence[np.ndarray]) -> np.ndarray:
        """Return the mean of the members' scores."""
        return np.mean(members, axis=0)

    def onnx_outputs(
        self, encoder: EncoderGraph, model: RankingModel, values: ExportSettings
    ) -> Outputs:
        """Add `scores`, float32 [B], of pairs."""
        scores = encoder.affine(encoder.pooled(), "head", model.head)
        return {"scores": (encoder.graph.axes("Squeeze", scores, 1), np.float32, ["B"])}


def answer(scores: np.ndarray) -> dict[str, Any]:
    """Return the prediction of a query; of equal scores, the earlier candidate comes first."""
    ranking = np.argsort(-scores, kind="stable")
    return {"scores": scores.tolist(), "ranking": ranking.tolist()}
