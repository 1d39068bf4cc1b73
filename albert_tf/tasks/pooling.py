"""One vector of a text from its hidden states, in TensorFlow and in ONNX."""

import numpy as np
import tensorflow as tf

from albert_tf.graph.onnx.encoder import EncoderGraph
from albert_tf.graph.onnx.graph import Graph

_TINY = 1e-12


def mean_of(hidden: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Return the mean of [B, S, H] over the positions with the mask [B, S] 1, 0 without any."""
    visible = tf.expand_dims(tf.cast(mask, tf.float32), 2)  # [B, S, 1]
    total = tf.reduce_sum(visible * hidden, axis=1)
    return total / tf.maximum(tf.reduce_sum(visible, axis=1), 1.0)


def normalized(vectors: tf.Tensor) -> tf.Tensor:
    """Return the vectors [..., D] with length 1; a vector of zeros stays one."""
    return tf.math.l2_normalize(vectors, axis=-1, epsilon=_TINY)


def onnx_mean(encoder: EncoderGraph) -> str:
    """Add `mean_of` of the last layer to a graph; return the name of the result [B, H]."""
    graph = encoder.graph
    mask = graph.axes("Unsqueeze", graph.op("Cast", "input_mask", to=1), 2)
    total = graph.op("Mul", mask, encoder.sequence_output())
    total = graph.axes("ReduceSum", total, 1, keepdims=0)
    count = graph.axes("ReduceSum", mask, 1, keepdims=0)
    return graph.op("Div", total, graph.op("Max", count, graph.constant(1.0, np.float32)))


def onnx_normalized(graph: Graph, vectors: str) -> str:
    """Add `normalized`; return the name of the result."""
    length = graph.axes("ReduceL2", vectors, 1, keepdims=1)
    length = graph.op("Max", length, graph.constant(_TINY**0.5, np.float32))
    return graph.op("Div", vectors, length)
