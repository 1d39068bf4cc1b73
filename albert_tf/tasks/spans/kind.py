"""The kind `span`."""

import numpy as np

from albert_tf.graph.onnx.encoder import EncoderGraph
from albert_tf.graph.onnx.graph import Outputs
from albert_tf.tasks.kind import ExportSettings, Kind
from albert_tf.tasks.spans.answers import average_spans, decode_spans
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.spans.features import SpanFeatures, featurize_spans
from albert_tf.tasks.spans.model import SpanModel, SpanSettings
from albert_tf.tasks.spans.module import SpanModule
from albert_tf.tasks.spans.onnx import SpanGraph
from albert_tf.tasks.transformers_head import TransformersHead


class _Head(TransformersHead[SpanSettings]):
    note = (
        "AlbertForQuestionAnswering is read as a model of SQuAD 1.1, which answers every question. "
        "If it was trained on SQuAD 2.0, its choice of [CLS] for no answer is lost."
    )

    def refusal(self, task: SpanSettings) -> str | None:
        """Return why the class cannot hold a joint head, or None for SQuAD 1.1."""
        if not task.answerable:
            return None
        return (
            "transformers has no class for the joint head of SQuAD 2.0. Received: a run with "
            "`task.answerable` true. Convert a run fine-tuned with --task=squad1, serve this one "
            "with albert_tf.export"
        )


class Span(Kind[SpanSettings]):
    """Extractive question answering: the span of a context that answers a question (SQuAD)."""

    name = "span"
    settings, model, example, features = SpanSettings, SpanModel, SpanExample, SpanFeatures
    module_class = SpanModule
    transformers = _Head(
        "AlbertForQuestionAnswering",
        "qa_outputs",
        our_layer="head/dense",
        has_pooler=False,
        open_settings=("seq_length", "query_length", "doc_stride", "max_answer_length", "n_best"),
    )

    featurize = staticmethod(featurize_spans)
    decode = staticmethod(decode_spans)
    average = staticmethod(average_spans)

    def onnx_outputs(
        self, encoder: EncoderGraph, model: SpanModel, values: ExportSettings
    ) -> Outputs:
        """Add `start`, `end` int32 [B, K], `score` [B, K] and, for SQuAD 2.0, `null` [B]."""
        outputs = SpanGraph(encoder, model.head).outputs(
            encoder.sequence_output(), "input_type_ids"
        )
        return {
            name: (
                value,
                np.int32 if name in ("start", "end") else np.float32,
                ["B"] if name == "null" else ["B", model.task.num_spans],
            )
            for name, value in outputs.items()
        }
