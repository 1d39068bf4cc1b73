"""The encoder as ONNX operators, each shared weight once.

Shapes: B texts, S pieces, H hidden units, N heads of width D, F inner width.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from albert_tf.graph.onnx.graph import Graph
from albert_tf.models.encoder import INPUTS, AlbertEncoder
from albert_tf.models.kernels.plain import ROTARY_BASE
from albert_tf.models.layers.attention import MASKED, SelfAttention
from albert_tf.models.layers.common import TINY_SQUARE
from albert_tf.models.layers.embeddings import AlbertEmbeddings
from albert_tf.models.layers.feed_forward import FeedForward

KNOWN = {
    "activation": ("gelu", "relu"),
    "norm": ("post", "pre"),
    "positions": ("learned", "rotary"),
    "ffn": ("plain", "gated"),
}


class EncoderGraph:
    """Adds an encoder to a graph, as `AlbertEncoder` computes it outside training.

    Args:
      graph: the graph to add to.
      encoder: the trained encoder.

    Raises:
      ConfigError: the encoder computes what has no operators here.
    """

    def __init__(self, graph: Graph, encoder: AlbertEncoder) -> None:
        encoder.config.require_known(KNOWN, "an ONNX model", "Export a SavedModel instead.")
        self.graph, self.encoder, self.config = graph, encoder, encoder.config

    def pooled(self, *ids: str) -> str:
        """Return the pooled output, float32 [B, H], for `ids` as in `sequence_output`."""
        return self.pooled_output(self.sequence_output(*ids, first_only=True))

    def mean(self) -> str:
        """Return the mean of the last layer over the pieces of a text, float32 [B, H]."""
        graph = self.graph
        mask = graph.axes("Unsqueeze", graph.op("Cast", "input_mask", to=1), 2)
        total = graph.axes(
            "ReduceSum", graph.op("Mul", mask, self.sequence_output()), 1, keepdims=0
        )
        count = graph.axes("ReduceSum", mask, 1, keepdims=0)
        return graph.op("Div", total, graph.op("Max", count, graph.constant(1.0, np.float32)))

    def normalized(self, vectors: str) -> str:
        """Return vectors [B, D] with length 1; a vector of zeros stays one."""
        length = self.graph.axes("ReduceL2", vectors, 1, keepdims=1)
        least = self.graph.constant(TINY_SQUARE**0.5, np.float32)
        return self.graph.op("Div", vectors, self.graph.op("Max", length, least))

    def sequence_output(self, *ids: str, first_only: bool = False) -> str:
        """Return the last layer's output, float32 [B, S, H].

        Args:
          ids: words, mask and types, int32 [B, S] each; by default the inputs of these names.
          first_only: return the output of the first position only, [B, 1, H].
        """
        words, mask, types = ids or INPUTS
        graph, stack = self.graph, self.encoder.stack
        x = self._embeddings(words, types)
        visible = graph.op("Cast", mask, to=1)  # float32
        hidden = graph.op("Sub", graph.constant(1.0, np.float32), visible)
        hidden = graph.op("Mul", hidden, graph.constant(MASKED, np.float32))
        added = graph.axes("Unsqueeze", hidden, 1, 2)  # [B, 1, 1, S]
        rotations = self._rotations(words) if self.config.positions == "rotary" else None
        for number, layer in enumerate(stack.plan, 1):
            attention, ffn = stack.attentions[layer.attention], stack.feed_forwards[layer.ffn]
            is_last = number == len(stack.plan)
            select = self._first if first_only and is_last else (lambda x: x)
            attend = functools.partial(
                self._attend, attention, mask=added, rotations=rotations, select=select
            )
            x = self._residual(attention, x, attend, select)
            x = self._residual(ffn, x, lambda y, f=ffn: self._transform(f, y))
        if stack.output_layer_norm is not None:
            x = self.layer_norm(x, "output_layer_norm", stack.output_layer_norm)
        return x

    def pooled_output(self, sequence_output: str) -> str:
        """Return float32 [B, H]."""
        graph = self.graph
        first = graph.op("Gather", sequence_output, graph.constant(0), axis=1)
        return graph.op("Tanh", self.affine(first, "pooler", self.encoder.pooler))

    def affine(self, x: str, name: str, layer: Any) -> str:
        """Return x W + b with the `kernel` and, if there is one, the `bias` of a layer."""
        graph = self.graph
        x = graph.product(x, f"{name}/kernel", layer.kernel.numpy())
        if getattr(layer, "bias", None) is None:
            return x
        return graph.op("Add", x, graph.weight(f"{name}/bias", layer.bias.numpy()))

    def layer_norm(self, x: str, name: str, layer: Any) -> str:
        """Return the LayerNorm of the last axis with the weights of a layer."""
        graph = self.graph
        gamma = graph.weight(f"{name}/gamma", layer.gamma.numpy())
        beta = graph.weight(f"{name}/beta", layer.beta.numpy())
        return graph.op("LayerNormalization", x, gamma, beta, epsilon=float(layer.epsilon))

    def activation(self, x: str) -> str:
        """Return the activation of x, as `Kernels.activation`."""
        if self.config.activation == "relu":
            return self.graph.op("Relu", x)
        return self.graph.op("Gelu", x, approximate="tanh")

    def _embeddings(self, words: str, types: str) -> str:
        graph = self.graph
        layer: AlbertEmbeddings = self.encoder.embeddings

        def table(name: str) -> tuple[str, np.ndarray]:
            return f"embeddings/{name}", getattr(layer, name).numpy()

        x = graph.rows(*table("word_embeddings"), graph.index(words))  # [B, S, E]
        x = graph.op("Add", x, graph.rows(*table("type_embeddings"), graph.index(types)))
        if self.config.positions == "learned":
            size = self._length(words)
            x = graph.op("Add", x, graph.first_rows(*table("position_embeddings"), size))
        x = self.layer_norm(x, "embeddings/layer_norm", layer.layer_norm)
        if layer.projection is None:
            return x
        return self.affine(x, "embeddings/projection", layer.projection)

    def _rotations(self, words: str) -> tuple[str, str]:
        """Return the cosines and sines of the positions' angles, float32 [S, D / 2] each."""
        graph, half = self.graph, self.config.head_size // 2
        frequency = (ROTARY_BASE ** (-np.arange(half, dtype=np.float64) / half)).astype(np.float32)
        position: np.ndarray = np.arange(self.config.max_positions, dtype=np.float32)
        angle = position[:, None] * frequency
        names = {"cosines": np.cos(angle), "sines": np.sin(angle)}
        size = self._length(words)
        cosine, sine = (
            graph.first(graph.weight(name, value), size) for name, value in names.items()
        )
        return cosine, sine

    def _length(self, words: str) -> str:
        """Return S, int64 [1]; more than the model's positions are an error."""
        limit = self.config.max_positions
        what = f"the inputs must have at most {limit} positions"
        return self.graph.limited_size(words, 1, limit, what)

    def _first(self, x: str) -> str:
        """Return the first position of [B, S, H]: [B, 1, H]."""
        begin, end = self.graph.constant([0]), self.graph.constant([1])
        return self.graph.op("Slice", x, begin, end, end)  # the last is the axis

    def _residual(
        self,
        layer: SelfAttention | FeedForward,
        x: str,
        update: Callable[[str], str],
        select: Callable[[str], str] = lambda x: x,
    ) -> str:
        """Return a sub-layer with residual connection and LayerNorm; see `common.residual`."""
        graph, name = self.graph, layer.name
        if self.config.norm == "post":
            total = graph.op("Add", select(x), update(x))
            return self.layer_norm(total, f"{name}/layer_norm", layer.layer_norm)
        normal = self.layer_norm(x, f"{name}/layer_norm", layer.layer_norm)
        return graph.op("Add", select(x), update(normal))

    def _attend(
        self,
        layer: SelfAttention,
        x: str,
        mask: str,
        rotations: tuple[str, str] | None,
        select: Callable[[str], str],
    ) -> str:
        graph, config, scale = self.graph, self.config, self.config.head_size**-0.5
        parts = (layer.query, layer.key, layer.value)
        scales = (scale, 1.0, 1.0)  # 1 / sqrt(D) is folded into the query's weights
        kernel = np.concatenate(
            [part.kernel.numpy() * s for part, s in zip(parts, scales, strict=True)], 1
        )
        bias = np.concatenate(
            [part.bias.numpy() * s for part, s in zip(parts, scales, strict=True)], 0
        )
        qkv = graph.product(x, f"{layer.name}/qkv/kernel", kernel)
        qkv = graph.op("Add", qkv, graph.weight(f"{layer.name}/qkv/bias", bias))
        heads = [0, 0, config.num_heads, config.head_size]  # 0: as it is
        query, key, value = (
            graph.op("Transpose", graph.reshape(part, *heads), perm=[0, 2, 1, 3])  # [B, N, S, D]
            for part in graph.ops("Split", [qkv], 3, axis=2, num_outputs=3)
        )
        if rotations is not None:
            query, key = self._rotated(query, rotations), self._rotated(key, rotations)
        logits = graph.op("MatMul", query, graph.op("Transpose", key, perm=[0, 1, 3, 2]))
        attended = graph.op("Softmax", graph.op("Add", logits, mask), axis=-1)  # [B, N, S, S]
        context = graph.op("Transpose", graph.op("MatMul", attended, value), perm=[0, 2, 1, 3])
        context = select(graph.reshape(context, 0, 0, config.hidden_size))
        return self.affine(context, f"{layer.name}/output", layer.output_dense)

    def _rotated(self, x: str, rotations: tuple[str, str]) -> str:
        graph, (cosine, sine) = self.graph, rotations
        first, second = graph.ops("Split", [x], 2, axis=-1, num_outputs=2)
        left = graph.op("Sub", graph.op("Mul", first, cosine), graph.op("Mul", second, sine))
        right = graph.op("Add", graph.op("Mul", second, cosine), graph.op("Mul", first, sine))
        return graph.op("Concat", left, right, axis=-1)

    def _transform(self, layer: FeedForward, x: str) -> str:
        graph = self.graph
        inner = self.affine(x, f"{layer.name}/intermediate", layer.intermediate)
        if self.config.ffn == "gated":
            gate, value = graph.ops("Split", [inner], 2, axis=-1, num_outputs=2)
            inner = graph.op("Mul", self.activation(gate), value)
        else:
            inner = self.activation(inner)
        return self.affine(inner, f"{layer.name}/output", layer.output_dense)
