"""Models of every kind as ONNX: the inputs and outputs of their exports' signature `tokens`."""

import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from albert_tf.graph.onnx.encoder import EncoderGraph
from albert_tf.graph.onnx.graph import Graph
from albert_tf.graph.onnx.int8_graph import Int8Graph
from albert_tf.models.encoder import INPUTS, AlbertEncoder
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime import outputs
from albert_tf.tasks.multiple_choice.model import ABSENT
from albert_tf.tasks.spans.onnx import SpanGraph
from albert_tf.tasks.task_model import TaskModel
from albert_tf.text.tokenizer import Tokenizer

MODEL_FILE = "model.onnx"
_GRAPHS = {"none": Graph, "int8": Int8Graph}
QUANTIZATIONS = tuple(_GRAPHS)
Outputs = dict[str, tuple[str, Any, Sequence[Any]]]  # name -> value, dtype, shape
_BOOL, _INT32, _FLOAT = 9, 6, np.float32


def write_onnx(
    model: Any,
    kind: str,
    folder: str,
    tokenizer: Tokenizer,
    config_path: str,
    pooling: str = "mean",
    quantization: str = "none",
) -> None:
    """Write model.onnx, tokenizer/ and config.json; see `onnx_model`.

    The folder appears only when it is complete.

    Args:
      model: see `onnx_model`, also for `kind`, `pooling` and `quantization`.
      kind: the kind of export.
      folder: a new or empty folder.
      tokenizer: the model's tokenizer.
      config_path: the run's config.json, which is copied.
      pooling: see above.
      quantization: see above.

    Raises:
      InputError: the package onnx is missing, or `folder` exists and is not empty.
    """
    content = onnx_model(model, kind, pooling, quantization).SerializeToString()
    with outputs.new_folder(folder) as partial:
        with open(os.path.join(partial, MODEL_FILE), "wb") as file:
            file.write(content)
        tokenizer.save(os.path.join(partial, "tokenizer"))
        shutil.copyfile(config_path, os.path.join(partial, "config.json"))


def onnx_model(model: Any, kind: str, pooling: str = "mean", quantization: str = "none") -> Any:
    """Return a trained model as an `onnx.ModelProto`.

    It takes `input_word_ids`, `input_mask` and `input_type_ids`, int32 [B, S] of any B and S (for
    multiple choice [B, N, S]), and for fill_mask `masked_lm_positions` int32 [B, P]. It returns:

      encoder: `pooled_output` [B, H], `sequence_output` [B, S, H].
      embedding: `embedding` [B, H].
      fill_mask: `mlm_logits` [B, P, V].
      classifier, multi_label: `probabilities` [B, labels].
      regressor: `score` [B].
      token_classifier: `probabilities` [B, S, tags].
      multiple_choice: `choice` int32 [B], `probabilities` [B, N].
      span: `start`, `end` int32 [B, K], `score` [B, K] and, for SQuAD 2.0, `null` [B].

    Args:
      model: the task model; the encoder for encoder and embedding; the pretrainer for fill_mask.
      kind: the kind of export.
      pooling: for embedding, `mean` or `cls`.
      quantization: type of the weights: `none` (float32) or `int8`; see `Int8Graph`.

    Raises:
      InputError: the package onnx is missing.
    """
    graph = _GRAPHS[quantization]()
    encoder = EncoderGraph(graph, model if isinstance(model, AlbertEncoder) else model.encoder)
    shape = ["B", "N", "S"] if kind == "multiple_choice" else ["B", "S"]
    inputs: dict[str, Sequence[Any]] = {name: shape for name in INPUTS}
    if kind == "multiple_choice":
        flat = [graph.reshape(name, -1, graph.size(name, 2)) for name in INPUTS]
    else:
        flat = [*INPUTS]
    reads_first = kind in _READ_FIRST or (kind, pooling) == ("embedding", "cls")
    words, mask, types = flat
    hidden = encoder.sequence_output(words, mask, types, reads_first)
    if kind == "fill_mask":
        inputs["masked_lm_positions"] = ["B", "P"]
    if kind == "embedding":
        return graph.model(inputs, _embedding(encoder, hidden, pooling))
    return graph.model(inputs, _OUTPUTS[kind](encoder, model, hidden))


def _encoder(encoder: EncoderGraph, model: AlbertEncoder, hidden: str) -> Outputs:
    width = model.config.hidden_size
    return {
        "pooled_output": (encoder.pooled_output(hidden), _FLOAT, ["B", width]),
        "sequence_output": (hidden, _FLOAT, ["B", "S", width]),
    }


def _embedding(encoder: EncoderGraph, hidden: str, pooling: str) -> Outputs:
    graph, width = encoder.graph, encoder.config.hidden_size
    if pooling == "cls":
        return {"embedding": (encoder.pooled_output(hidden), _FLOAT, ["B", width])}
    mask = graph.axes("Unsqueeze", graph.op("Cast", "input_mask", to=1), 2)
    total = graph.axes("ReduceSum", graph.op("Mul", mask, hidden), 1, keepdims=0)
    count = graph.axes("ReduceSum", mask, 1, keepdims=0)
    mean = graph.op("Div", total, graph.op("Max", count, graph.constant(1.0, _FLOAT)))
    return {"embedding": (mean, _FLOAT, ["B", width])}


def _fill_mask(encoder: EncoderGraph, model: AlbertPretrainer, hidden: str) -> Outputs:
    graph, head, vocab = encoder.graph, model.mlm_head, encoder.config.vocab_size
    positions = graph.axes("Unsqueeze", graph.index("masked_lm_positions"), 2)
    positions = graph.op("Cast", positions, to=7)  # int64
    rows = graph.op("GatherND", hidden, positions, batch_dims=1)  # [B, P, H]
    x = encoder.activation(encoder.affine(rows, "mlm_head/transform", head.transform))
    x = encoder.layer_norm(x, "mlm_head/layer_norm", head.layer_norm)
    table = encoder.encoder.embeddings.word_embeddings.numpy()
    logits = graph.product(x, "embeddings/word_embeddings", table, transposed=True)
    logits = graph.op("Add", logits, graph.weight("mlm_head/bias", head.bias.numpy()))
    return {"mlm_logits": (logits, _FLOAT, ["B", "P", vocab])}


def _classifier(encoder: EncoderGraph, model: TaskModel, hidden: str) -> Outputs:
    logits = encoder.affine(encoder.pooled_output(hidden), "head", model.head)
    probabilities = encoder.graph.op("Softmax", logits, axis=-1)
    return {"probabilities": (probabilities, _FLOAT, ["B", len(model.task.labels)])}


def _multi_label(encoder: EncoderGraph, model: TaskModel, hidden: str) -> Outputs:
    logits = encoder.affine(encoder.pooled_output(hidden), "head", model.head)
    probabilities = encoder.graph.op("Sigmoid", logits)
    return {"probabilities": (probabilities, _FLOAT, ["B", len(model.task.labels)])}


def _regressor(encoder: EncoderGraph, model: TaskModel, hidden: str) -> Outputs:
    graph, task = encoder.graph, model.task
    score = encoder.affine(encoder.pooled_output(hidden), "head", model.head)
    score = graph.op("Mul", graph.axes("Squeeze", score, 1), graph.constant(task.scale, _FLOAT))
    score = graph.op("Add", score, graph.constant(task.center, _FLOAT))
    return {"score": (score, _FLOAT, ["B"])}


def _token_classifier(encoder: EncoderGraph, model: TaskModel, hidden: str) -> Outputs:
    logits = encoder.affine(hidden, "head", model.head)
    probabilities = encoder.graph.op("Softmax", logits, axis=-1)
    return {"probabilities": (probabilities, _FLOAT, ["B", "S", len(model.task.tags)])}


def _multiple_choice(encoder: EncoderGraph, model: TaskModel, hidden: str) -> Outputs:
    graph = encoder.graph
    scores = encoder.affine(encoder.pooled_output(hidden), "head", model.head)
    scores = graph.reshape(scores, -1, graph.size("input_mask", 1))
    is_option = graph.op("Cast", graph.axes("ReduceMax", "input_mask", 2, keepdims=0), to=_BOOL)
    logits = graph.op("Where", is_option, scores, graph.constant(ABSENT, _FLOAT))
    choice = graph.op("Cast", graph.op("ArgMax", logits, axis=1, keepdims=0), to=_INT32)
    return {
        "choice": (choice, np.int32, ["B"]),
        "probabilities": (graph.op("Softmax", logits, axis=-1), _FLOAT, ["B", "N"]),
    }


def _span(encoder: EncoderGraph, model: TaskModel, hidden: str) -> Outputs:
    found = SpanGraph(encoder, model.head).outputs(hidden, "input_type_ids")
    count = model.task.beam**2 if model.task.answerable else model.task.n_best
    integers = ("start", "end")
    return {
        name: (
            value,
            np.int32 if name in integers else _FLOAT,
            ["B"] if name == "null" else ["B", count],
        )
        for name, value in found.items()
    }


_READ_FIRST = ("classifier", "multi_label", "regressor", "multiple_choice")
_OUTPUTS: dict[str, Callable[[EncoderGraph, Any, str], Outputs]] = {
    "encoder": _encoder,
    "fill_mask": _fill_mask,
    "classifier": _classifier,
    "multi_label": _multi_label,
    "regressor": _regressor,
    "token_classifier": _token_classifier,
    "multiple_choice": _multiple_choice,
    "span": _span,
}
