"""Graphs whose large weights are int8."""

import numpy as np

from albert_tf.graph.onnx.graph import Graph

_INPUTS = 127  # the largest |q| of a product's input
_WEIGHTS = 64  # the largest |V|
_UINT8_ZERO = 128
_SMALLEST_SIDE = 16  # of a matrix that is quantized
_TINY = 1e-30  # smaller maxima count as zero


class Int8Graph(Graph):
    """A `Graph` with int8 weights, multiplied in integers.

    A matrix is stored as int8 with a float32 scale for each column, a table with one for each row;
    see `quantize`. Those with a side of less than 16 remain float32.

    A product quantizes the rows of x when it runs. With m the largest |x| of a row,

        x W = m / 127 (q V) s,  q = round(127 x / m),  W = V s.

    Each row has its own m, so that an answer does not depend on the other texts in the batch, and a
    row of large numbers does not cost the others their precision. The error is at most
    (m / 254) sum|V s| + (s / 2) sum|x|, with the sums over the inner axis.

    q + 128 is uint8, which x86 CPUs multiply fastest with int8. Those without VNNI add two such
    products in int16. |V| is therefore at most 64: 2 x 255 x 64 < 2**15, so nothing saturates.
    """

    def product(self, x: str, name: str, kernel: np.ndarray, transposed: bool = False) -> str:
        """Return x W, float32 [..., N], for x [..., K]; see `Graph.product`."""
        if min(kernel.shape) < _SMALLEST_SIDE:
            return super().product(x, name, kernel, transposed)
        weight, scales = self._quantized(name, kernel, axis=1 if transposed else 0)
        weight = self._transpose(weight) if transposed else weight
        step, zero = self._float(1 / _INPUTS), self.constant(_UINT8_ZERO, np.uint8)
        largest = self.axes("ReduceMax", self.op("Abs", x), -1)
        largest = self.op("Max", largest, self._float(_TINY))
        q = self.op("QuantizeLinear", self.op("Div", x, largest), step, zero)
        total = self.op("Cast", self.op("MatMulInteger", q, weight, zero), to=1)  # float32
        # In this order: ONNX Runtime 1.32 fuses a product of both scales, and then scales the bias.
        return self.op("Mul", self.op("Mul", total, self.op("Mul", scales, step)), largest)

    def rows(self, name: str, table: np.ndarray, ids: str) -> str:
        """Return the rows of a table [V, E], float32 [..., E]; see `Graph.rows`."""
        if min(table.shape) < _SMALLEST_SIDE:
            return super().rows(name, table, ids)
        weight, scales = self._quantized(name, table, axis=1)
        return self._scaled(self.op("Gather", weight, ids), self.op("Gather", scales, ids))

    def first_rows(self, name: str, table: np.ndarray, count: str) -> str:
        """Return the first rows of a table [V, E], float32 [count, E]; see `Graph.first_rows`."""
        if min(table.shape) < _SMALLEST_SIDE:
            return super().first_rows(name, table, count)
        weight, scales = self._quantized(name, table, axis=1)
        return self._scaled(self.first(weight, count), self.first(scales, count))

    def _quantized(self, name: str, value: np.ndarray, axis: int) -> tuple[str, str]:
        weight, scales = quantize(value, axis)
        return self.weight(f"{name}/int8", weight), self.weight(f"{name}/scales", scales)

    def _scaled(self, rows: str, scales: str) -> str:
        rows = self.op("Cast", rows, to=1)  # float32
        return self.op("Mul", rows, self.axes("Unsqueeze", scales, -1))

    def _float(self, value: float) -> str:
        return self.constant(value, np.float32)


def quantize(matrix: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Return int8 V in [-64, 64] and float32 scales s for which V s is nearest to the matrix.

    Args:
      matrix: float32 [K, N].
      axis: the axis whose numbers share a scale: 0 gives N scales, one for each column.
    """
    largest = np.abs(matrix).max(axis, keepdims=True)
    scales = (np.where(largest < _TINY, 1, largest) / _WEIGHTS).astype(np.float32)
    return np.rint(matrix / scales).astype(np.int8), scales.squeeze(axis)
