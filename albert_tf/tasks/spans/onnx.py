"""The heads of span models as ONNX operators, as `tasks.spans.heads` computes them.

Shapes: B windows, S positions, H hidden units, P starts, K candidates.
"""

import numpy as np

from albert_tf.graph.onnx.encoder import EncoderGraph
from albert_tf.tasks.spans.heads import NEVER, IndependentHead, JointHead

Outputs = dict[str, str]


class SpanGraph:
    """Adds a span head to the graph of its encoder.

    Args:
      encoder: the graph's encoder.
      head: the trained head.
    """

    def __init__(self, encoder: EncoderGraph, head: IndependentHead | JointHead) -> None:
        self._encoder, self._graph, self._head = encoder, encoder.graph, head

    def outputs(self, hidden: str, types: str) -> Outputs:
        """Return `start`, `end`, `score` [B, K] and, of a joint head, `null` [B].

        Args:
          hidden: the encoder's sequence output.
          types: `input_type_ids`.
        """
        allowed = self._allowed(types)
        if isinstance(self._head, JointHead):
            return self._joint(self._head, hidden, allowed)
        return self._independent(self._head, hidden, allowed)

    def _allowed(self, types: str) -> str:
        """Return bool [B, S], as `allowed_positions` does."""
        graph = self._graph
        axis, one = graph.constant([1]), graph.constant([1])
        end = graph.constant([np.iinfo(np.int64).max])
        is_second = graph.op("Cast", types, to=9)  # bool
        rest = graph.op("Slice", is_second, one, end, axis)
        first = graph.op("Slice", is_second, graph.constant([0]), one, axis)
        false = graph.op("And", first, graph.op("Not", first))  # [B, 1]
        follower = graph.op("Concat", rest, false, axis=1)
        context = graph.op("Slice", graph.op("And", is_second, follower), one, end, axis)
        return graph.op("Concat", graph.op("Not", false), context, axis=1)

    def _independent(self, head: IndependentHead, hidden: str, allowed: str) -> Outputs:
        graph, longest = self._graph, head.max_length
        logits = self._encoder.affine(hidden, "head/dense", head.dense)
        start, end = (
            self._where(allowed, graph.axes("Squeeze", part, 2))
            for part in graph.ops("Split", [logits], 2, axis=2, num_outputs=2)
        )
        size = graph.size(end, 1)
        positions = graph.op(
            "Range", graph.constant(0), graph.axes("Squeeze", size, 0), graph.constant(1)
        )
        is_cls = graph.op("Equal", positions, graph.constant([0]))
        start = graph.op("Where", is_cls, self._never(), start)
        padded = graph.op("Pad", end, graph.constant([0, 0, 0, longest - 1]), self._never())
        shifts = graph.constant([list(range(longest))])
        index = graph.op("Add", graph.axes("Unsqueeze", positions, 1), shifts)  # [S, longest]
        ends = graph.op("Gather", padded, index, axis=1)  # [B, S, longest]
        scores = graph.op("Add", graph.axes("Unsqueeze", start, 2), ends)
        flat = graph.reshape(scores, -1, graph.op("Mul", size, graph.constant([longest])))
        score, flat_index = self._top_k(flat, head.n_best)
        first = graph.op("Div", flat_index, graph.constant([longest]))
        last = graph.op("Add", first, graph.op("Mod", flat_index, graph.constant([longest])))
        return {"start": self._int32(first), "end": self._int32(last), "score": score}

    def _joint(self, head: JointHead, hidden: str, allowed: str) -> Outputs:
        graph, beam = self._graph, head.beam
        start = self._encoder.affine(hidden, "head/start_logits", head.start_logits)
        start = self._where(allowed, graph.axes("Squeeze", start, 2))  # [B, S]
        start_score, first = self._top_k(graph.op("LogSoftmax", start, axis=-1), beam)  # [B, P]
        end = self._end_logits(head, hidden, first)  # [B, P, S]
        end = self._where(graph.axes("Unsqueeze", allowed, 1), end)
        end_score, last = self._top_k(graph.op("LogSoftmax", end, axis=-1), beam)  # [B, P, P]
        score = graph.op("Add", graph.axes("Unsqueeze", start_score, 2), end_score)
        repeated = graph.op("Expand", graph.axes("Unsqueeze", first, 2), graph.op("Shape", last))
        return {
            "start": self._int32(graph.reshape(repeated, 0, beam**2)),
            "end": self._int32(graph.reshape(last, 0, beam**2)),
            "score": graph.reshape(score, 0, beam**2),
            "null": self._null(head, hidden, start),
        }

    def _end_logits(self, head: JointHead, hidden: str, starts: str) -> str:
        """Return [B, P, S]; see `heads.EndLogits`."""
        graph, layer = self._graph, head.end_logits
        kernels = np.split(layer.dense_0.kernel.numpy(), 2)
        names = ("head/end_logits/hidden_kernel", "head/end_logits/start_kernel")
        chosen = graph.op(
            "GatherND", hidden, graph.axes("Unsqueeze", starts, 2), batch_dims=1
        )  # [B, P, H]
        x = graph.op(
            "Add",
            graph.axes("Unsqueeze", graph.product(hidden, names[0], kernels[0]), 1),
            graph.axes("Unsqueeze", graph.product(chosen, names[1], kernels[1]), 2),
        )
        bias = graph.weight("head/end_logits/bias", layer.dense_0.bias.numpy())
        x = graph.op("Tanh", graph.op("Add", x, bias))
        x = self._encoder.layer_norm(x, "head/end_logits/layer_norm", layer.layer_norm)
        return graph.axes("Squeeze", self._encoder.affine(x, "head/end", layer.dense_1), 3)

    def _null(self, head: JointHead, hidden: str, start: str) -> str:
        graph, layer = self._graph, head.answer_class
        shares = graph.axes("Unsqueeze", graph.op("Softmax", start, axis=-1), 1)  # [B, 1, S]
        summary = graph.axes("Squeeze", graph.op("MatMul", shares, hidden), 1)
        cls = graph.op("Gather", hidden, graph.constant(0), axis=1)
        x = graph.op("Concat", summary, cls, axis=-1)
        x = graph.op("Tanh", self._encoder.affine(x, "head/answer/dense_0", layer.dense_0))
        return graph.axes("Squeeze", self._encoder.affine(x, "head/answer/out", layer.dense_1), 1)

    def _top_k(self, scores: str, count: int) -> tuple[str, str]:
        """Return the values and the indices of the last axis; see `heads.top_k`."""
        graph = self._graph
        size = graph.op("Shape", scores, start=-1)
        low = graph.constant(-np.inf, np.float32)
        padded = graph.op("Pad", scores, graph.constant([0, count]), low, graph.constant([-1]))
        values, indices = graph.ops("TopK", [padded, graph.constant([count])], 2, axis=-1)
        return values, graph.op("Min", indices, graph.op("Sub", size, graph.constant([1])))

    def _where(self, allowed: str, logits: str) -> str:
        return self._graph.op("Where", allowed, logits, self._never())

    def _never(self) -> str:
        return self._graph.constant(NEVER, np.float32)

    def _int32(self, value: str) -> str:
        return self._graph.op("Cast", value, to=6)
