"""The kind `token_classifier`."""

from typing import Any

import numpy as np

from albert_tf.graph.onnx.encoder import EncoderGraph
from albert_tf.graph.onnx.graph import Outputs
from albert_tf.tasks.kind import ExportSettings, Kind
from albert_tf.tasks.tokens.entities import decode_tokens
from albert_tf.tasks.tokens.examples import TokenExample
from albert_tf.tasks.tokens.features import TokenFeatures, featurize_tokens
from albert_tf.tasks.tokens.model import TokenClassifier, TokenSettings
from albert_tf.tasks.tokens.module import TokenClassifierModule
from albert_tf.tasks.transformers_head import MOST_LABELS, TransformersHead


class _Head(TransformersHead[TokenSettings]):
    def labels(self, task: TokenSettings) -> tuple[str, ...]:
        """Return the tags."""
        return task.tags

    def settings_of(self, labels: tuple[str, ...]) -> dict[str, Any]:
        """Return `labels` and `scheme` of tags in any order.

        `run_ner.py` of transformers sorts them: all B before all I, and O last.
        """
        if "O" not in labels and not any(tag.startswith(("B-", "I-")) for tag in labels):
            return {"labels": labels, "scheme": "words"}
        names = tuple(tag[2:] for tag in labels if tag.startswith("B-"))
        if {*labels} != {"O", *(f"{prefix}-{name}" for name in names for prefix in "BI")}:
            raise ValueError("O, and B-X and I-X for each label X, or labels of words without O")
        return {"labels": names, "scheme": "bio"}


class Tokens(Kind[TokenSettings]):
    """Token classification: labeled spans of a text, or a label for each word."""

    name = "token_classifier"
    settings, model, example, features = TokenSettings, TokenClassifier, TokenExample, TokenFeatures
    module_class = TokenClassifierModule
    takes_strings = True
    transformers = _Head(
        "AlbertForTokenClassification",
        "classifier",
        label_counts=range(1, MOST_LABELS + 1),
        has_pooler=False,
        open_settings=("seq_length", "doc_stride"),
    )

    featurize = staticmethod(featurize_tokens)
    decode = staticmethod(decode_tokens)

    def onnx_outputs(
        self, encoder: EncoderGraph, model: TokenClassifier, values: ExportSettings
    ) -> Outputs:
        """Add `probabilities`, float32 [B, S, tags]."""
        logits = encoder.affine(encoder.sequence_output(), "head", model.head)
        probabilities = encoder.graph.op("Softmax", logits, axis=-1)
        return {"probabilities": (probabilities, np.float32, ["B", "S", len(model.task.tags)])}
