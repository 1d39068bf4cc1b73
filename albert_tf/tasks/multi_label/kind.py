"""The kind `multi_label`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.graph.onnx.encoder import EncoderGraph
from albert_tf.graph.onnx.graph import Outputs
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.features import TextFeatures
from albert_tf.tasks.kind import ExportSettings
from albert_tf.tasks.multi_label.model import (
    MultiLabelClassifier,
    MultiLabelSettings,
    chosen_labels,
)
from albert_tf.tasks.multi_label.module import MultiLabelModule
from albert_tf.tasks.probabilities import logit, sigmoid
from albert_tf.tasks.texts import TextKind
from albert_tf.tasks.transformers_head import MOST_LABELS, TransformersHead


class MultiLabel(TextKind[MultiLabelSettings]):
    """Multi-label classification: any number of labels, or none, for a text or a pair of texts."""

    name = "multi_label"
    settings, model = MultiLabelSettings, MultiLabelClassifier
    module_class = MultiLabelModule
    transformers = TransformersHead(
        "AlbertForSequenceClassification",
        "classifier",
        "multi_label_classification",
        range(1, MOST_LABELS + 1),
        per_label=("thresholds",),
        open_settings=TextKind.open_settings,
    )

    def decode(
        self,
        outputs: np.ndarray,
        features: TextFeatures,
        examples: Sequence[TextExample],
        task: MultiLabelSettings,
    ) -> list[dict[str, Any]]:
        """Return the `labels` above their thresholds, the most probable first, `probabilities`.

        `outputs` are logits [N, labels].
        """
        return [
            {
                "labels": chosen_labels(row, task),
                "probabilities": dict(zip(task.labels, row.tolist(), strict=True)),
            }
            for row in sigmoid(self.text_logits(outputs, features, task))
        ]

    def text_logits(
        self, outputs: np.ndarray, features: TextFeatures, task: MultiLabelSettings
    ) -> np.ndarray:
        """Return logits [texts, labels] whose sigmoid is the windows' pooled probabilities."""
        if features.num_examples == len(outputs):
            return outputs
        return logit(features.pooled(sigmoid(outputs), task.long_texts))

    def average(self, members: Sequence[np.ndarray]) -> np.ndarray:
        """Return logits [N, labels] whose probabilities are the mean of the members'."""
        return logit(np.mean([sigmoid(logits) for logits in members], axis=0))

    def onnx_outputs(
        self, encoder: EncoderGraph, model: MultiLabelClassifier, values: ExportSettings
    ) -> Outputs:
        """Add `probabilities`, float32 [B, labels]."""
        logits = encoder.affine(encoder.pooled(), "head", model.head)
        probabilities = encoder.graph.op("Sigmoid", logits)
        return {"probabilities": (probabilities, np.float32, ["B", len(model.task.labels)])}
