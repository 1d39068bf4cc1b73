"""The kind `multiple_choice`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.graph.onnx.encoder import EncoderGraph
from albert_tf.graph.onnx.graph import Outputs
from albert_tf.models.encoder import INPUTS
from albert_tf.tasks.features import TextFeatures
from albert_tf.tasks.kind import ExportSettings, Kind
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.multiple_choice.features import featurize_choices
from albert_tf.tasks.multiple_choice.model import (
    ABSENT,
    MultipleChoiceModel,
    MultipleChoiceSettings,
    option_letter,
)
from albert_tf.tasks.multiple_choice.module import MultipleChoiceModule
from albert_tf.tasks.probabilities import softmax
from albert_tf.tasks.transformers_head import TransformersHead

_BOOL, _INT32 = 9, 6  # ONNX's numbers


class MultipleChoice(Kind[MultipleChoiceSettings]):
    """Multiple choice: which of several options answers a question, with or without a context."""

    name = "multiple_choice"
    settings, model, example, features = (
        MultipleChoiceSettings,
        MultipleChoiceModel,
        ChoiceExample,
        TextFeatures,
    )
    module_class = MultipleChoiceModule
    transformers = TransformersHead(
        "AlbertForMultipleChoice",
        "classifier",
        open_settings=("seq_length", "num_choices", "qa_length"),
    )

    featurize = staticmethod(featurize_choices)

    def decode(
        self,
        outputs: np.ndarray,
        features: TextFeatures,
        examples: Sequence[ChoiceExample],
        task: MultipleChoiceSettings,
    ) -> list[dict[str, Any]]:
        """Return a dict for each example.

        `choice` is the index of the best option, `label` is its letter, and `probabilities` are
        those of the question's own options. `outputs` are logits [N, options].
        """
        predictions = []
        rows = softmax(self.text_logits(outputs, features, task))
        for row, example in zip(rows, examples, strict=True):
            probabilities = row[: len(example.options)]
            choice = int(probabilities.argmax())
            predictions.append(
                {
                    "choice": choice,
                    "label": option_letter(choice),
                    "probabilities": probabilities.tolist(),
                }
            )
        return predictions

    def onnx_inputs(self) -> Mapping[str, Sequence[str]]:
        """Return the shapes of the inputs: a sequence for each option."""
        return {name: ("B", "N", "S") for name in INPUTS}

    def onnx_outputs(
        self, encoder: EncoderGraph, model: MultipleChoiceModel, values: ExportSettings
    ) -> Outputs:
        """Add `choice`, int32 [B], and `probabilities`, float32 [B, N]."""
        graph = encoder.graph
        flat = [graph.reshape(name, -1, graph.size(name, 2)) for name in INPUTS]
        scores = encoder.affine(encoder.pooled(*flat), "head", model.head)
        scores = graph.reshape(scores, -1, graph.size("input_mask", 1))
        is_option = graph.op("Cast", graph.axes("ReduceMax", "input_mask", 2, keepdims=0), to=_BOOL)
        logits = graph.op("Where", is_option, scores, graph.constant(ABSENT, np.float32))
        choice = graph.op("Cast", graph.op("ArgMax", logits, axis=1, keepdims=0), to=_INT32)
        return {
            "choice": (choice, np.int32, ["B"]),
            "probabilities": (graph.op("Softmax", logits, axis=-1), np.float32, ["B", "N"]),
        }
