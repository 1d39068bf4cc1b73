"""The kind `classifier`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.graph.onnx.encoder import EncoderGraph
from albert_tf.graph.onnx.graph import Outputs
from albert_tf.tasks.classifier.model import ClassifierSettings, SequenceClassifier
from albert_tf.tasks.classifier.module import ClassifierModule
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.features import TextFeatures
from albert_tf.tasks.kind import ExportSettings
from albert_tf.tasks.probabilities import softmax
from albert_tf.tasks.texts import TextKind
from albert_tf.tasks.transformers_head import MOST_LABELS, TransformersHead


class _Head(TransformersHead[ClassifierSettings]):
    def refusal(self, task: ClassifierSettings) -> str | None:
        """Return why the class cannot hold a head on the mean, or None for the pooled output."""
        if task.pooling == "cls":
            return None
        return (
            "transformers has no class whose head reads the mean of the last layer. Received: a "
            f"run with `task.pooling` {task.pooling}. Serve this one with albert_tf.export"
        )


class Classifier(TextKind[ClassifierSettings]):
    """Sequence classification: a label for a text or a pair of texts."""

    name = "classifier"
    options = ("precision", "depths", "patience")
    settings, model = ClassifierSettings, SequenceClassifier
    module_class = ClassifierModule
    transformers = _Head(
        "AlbertForSequenceClassification",
        "classifier",
        "single_label_classification",
        range(2, MOST_LABELS + 1),
        open_settings=TextKind.open_settings,
    )

    def decode(
        self,
        outputs: np.ndarray,
        features: TextFeatures,
        examples: Sequence[TextExample],
        task: ClassifierSettings,
    ) -> list[dict[str, Any]]:
        """Return the `label`, its probability `score` and all `probabilities` of each example.

        `outputs` are logits [N, labels].
        """
        return [
            {
                "label": task.labels[int(row.argmax())],
                "score": float(row.max()),
                "probabilities": dict(zip(task.labels, row.tolist(), strict=True)),
            }
            for row in softmax(self.text_logits(outputs, features, task))
        ]

    def onnx_outputs(
        self, encoder: EncoderGraph, model: SequenceClassifier, values: ExportSettings
    ) -> Outputs:
        """Add `probabilities`, float32 [B, labels]."""
        if model.task.pooling == "cls":
            pooled = encoder.pooled()
        else:
            pooled = encoder.normalized(encoder.mean())
        logits = encoder.affine(pooled, "head", model.head)
        probabilities = encoder.graph.op("Softmax", logits, axis=-1)
        return {"probabilities": (probabilities, np.float32, ["B", len(model.task.labels)])}
