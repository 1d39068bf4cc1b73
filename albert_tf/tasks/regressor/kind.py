"""The kind `regressor`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from albert_tf.graph.onnx.encoder import EncoderGraph
from albert_tf.graph.onnx.graph import Outputs
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.features import TextFeatures
from albert_tf.tasks.kind import ExportSettings
from albert_tf.tasks.regressor.model import RegressorSettings, SequenceRegressor
from albert_tf.tasks.regressor.module import RegressorModule
from albert_tf.tasks.texts import TextKind
from albert_tf.tasks.transformers_head import TransformersHead, Weights


class _Head(TransformersHead[RegressorSettings]):
    """Theirs predicts in the unit of the labels; ours is scaled after the head."""

    def to_theirs(self, weights: Weights, task: RegressorSettings) -> Weights:
        """Return the weights of center + scale (x W + b) = x (scale W) + (scale b + center)."""
        return _with_head(weights, lambda w: w * task.scale, lambda b: b * task.scale + task.center)

    def to_ours(self, weights: Weights, task: RegressorSettings) -> Weights:
        """Invert `to_theirs`, exactly if scale is a power of two and center is 0."""
        return _with_head(
            weights, lambda w: w / task.scale, lambda b: (b - task.center) / task.scale
        )


def _with_head(
    weights: Weights,
    kernel: Callable[[np.ndarray], np.ndarray],
    bias: Callable[[np.ndarray], np.ndarray],
) -> Weights:
    """Return the weights with `kernel` and `bias` applied in float64 to those of the head."""
    changed = dict(weights)
    for name, change in (("head/kernel", kernel), ("head/bias", bias)):
        exact: np.ndarray = weights[name].astype(np.float64)
        changed[name] = change(exact).astype(np.float32)
    return changed


class Regressor(TextKind[RegressorSettings]):
    """Regression: a number for a text or a pair of texts, such as the similarity of two."""

    name = "regressor"
    settings, model = RegressorSettings, SequenceRegressor
    module_class = RegressorModule
    transformers = _Head(
        "AlbertForSequenceClassification",
        "classifier",
        "regression",
        range(1, 2),
        has_names=False,
        open_settings=TextKind.open_settings,
    )

    def decode(
        self,
        outputs: np.ndarray,
        features: TextFeatures,
        examples: Sequence[TextExample],
        task: RegressorSettings,
    ) -> list[dict[str, Any]]:
        """Return the `score` of each example, from scores [N]."""
        pooled = features.pooled(outputs.astype(np.float64), task.long_texts)
        return [{"score": float(score)} for score in pooled]

    def average(self, members: Sequence[np.ndarray]) -> np.ndarray:
        """Return the mean of the members' scores [N]."""
        return np.mean(members, axis=0)

    def onnx_outputs(
        self, encoder: EncoderGraph, model: SequenceRegressor, values: ExportSettings
    ) -> Outputs:
        """Add `score`, float32 [B]."""
        graph, task = encoder.graph, model.task
        score = encoder.affine(encoder.pooled(), "head", model.head)
        scale, center = (graph.constant(number, np.float32) for number in (task.scale, task.center))
        score = graph.op("Mul", graph.axes("Squeeze", score, 1), scale)
        return {"score": (graph.op("Add", score, center), np.float32, ["B"])}
