"""A small builder of ONNX graphs: operators by name, and each constant once."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.runtime import extras

# Outputs of a graph: name -> value, dtype, shape.
Outputs = Mapping[str, tuple[str, Any, Sequence[Any]]]
OPSET = 20  # the first with Gelu
_IR_VERSION = 9  # of the same release


class Graph:
    """The nodes and constants of a graph under construction; values are known by their names."""

    def __init__(self) -> None:
        self._onnx = import_onnx()
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._names: dict[bytes, str] = {}  # of small constants

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator with one output; return the output."""
        (output,) = self.ops(kind, inputs, 1, **attributes)
        return output

    def ops(self, kind: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        """Add an operator with `count` outputs; return them."""
        outputs = [f"{kind}_{len(self._nodes)}_{i}" for i in range(count)]
        node = self._onnx.helper.make_node(kind, [*inputs], outputs, **attributes)
        self._nodes.append(node)
        return outputs

    def weight(self, name: str, value: Any) -> str:
        """Add a weight under its own name, unless it is there already; return the name."""
        if name not in self._constants:
            array = np.asarray(value, order="C")
            self._constants[name] = self._onnx.numpy_helper.from_array(array, name)
        return name

    def product(self, x: str, name: str, kernel: np.ndarray, transposed: bool = False) -> str:
        """Return x W, float32 [..., N], for x [..., K].

        Args:
          x: a value.
          name: the name of the weight W.
          kernel: W [K, N]; if `transposed`, its transpose [N, K].
          transposed: see above.
        """
        weight = self.weight(name, kernel)
        return self.op("MatMul", x, self._transpose(weight) if transposed else weight)

    def index(self, ids: str) -> str:
        """Return int32 ids as they are, but negative ones too large, so that they are refused.

        ONNX counts negative indices from the end.
        """
        too_large, zero = (self.constant(value, np.int32) for value in (np.iinfo(np.int32).max, 0))
        return self.op("Where", self.op("Less", ids, zero), too_large, ids)

    def rows(self, name: str, table: np.ndarray, ids: str) -> str:
        """Return the rows of a table [V, E] for ids of any shape, float32 [..., E]."""
        return self.op("Gather", self.weight(name, table), ids)

    def first_rows(self, name: str, table: np.ndarray, count: str) -> str:
        """Return the first rows of a table [V, E], float32 [count, E]; `count` is int64 [1]."""
        return self.first(self.weight(name, table), count)

    def first(self, value: str, count: str) -> str:
        """Return the first `count`, int64 [1], of the first axis."""
        zero = self.constant([0])
        return self.op("Slice", value, zero, count, zero)

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """Add a small constant, by default of integers; equal ones are stored once."""
        array = np.array(value, dtype)
        key = repr((array.dtype.str, array.shape)).encode() + array.tobytes()
        name = self._names.setdefault(key, f"constant_{len(self._names)}")
        return self.weight(name, array)

    def size(self, value: str, axis: int) -> str:
        """Return the size of an axis, int64 [1]."""
        return self.op("Shape", value, start=axis, end=axis + 1)

    def limited_size(self, value: str, axis: int, limit: int, what: str) -> str:
        """Return the size of an axis, int64 [1]; a size above `limit` is an error that says `what`.

        ONNX has no assertions, but a Gather refuses an index that is out of bounds.
        """
        sizes = self.constant(range(limit + 1))
        return self.op("Gather", sizes, self.size(value, axis), name=what)

    def reshape(self, value: str, *sizes: int | str) -> str:
        """Reshape to sizes that are numbers or int64 [1]; -1: whatever remains."""
        if all(isinstance(size, int) for size in sizes):
            return self.op("Reshape", value, self.constant(sizes))
        parts = [self.constant([size]) if isinstance(size, int) else size for size in sizes]
        return self.op("Reshape", value, self.op("Concat", *parts, axis=0))

    def axes(self, kind: str, value: str, *axes: int, **attributes: Any) -> str:
        """Apply Squeeze, Unsqueeze or a reduction over `axes`."""
        return self.op(kind, value, self.constant(axes), **attributes)

    def _transpose(self, value: str) -> str:
        return self.op("Transpose", value, perm=[1, 0])

    def model(self, inputs: Mapping[str, Sequence[str | int]], outputs: Outputs) -> Any:
        """Return the model as an `onnx.ModelProto`, which has been checked.

        Args:
          inputs: name -> shape; all are int32. A dimension is a number or a name.
          outputs: name -> its value, its dtype and its shape.
        """
        helper, types = self._onnx.helper, self._onnx.helper.np_dtype_to_tensor_dtype
        renamed = {value: name for name, (value, _, _) in outputs.items()}
        for node in self._nodes:
            for values in (node.input, node.output):
                values[:] = [renamed.get(value, value) for value in values]
        graph = helper.make_graph(
            self._nodes,
            "albert_tf",
            [
                helper.make_tensor_value_info(name, types(np.dtype(np.int32)), [*shape])
                for name, shape in inputs.items()
            ],
            [
                helper.make_tensor_value_info(name, types(np.dtype(dtype)), [*shape])
                for name, (_, dtype, shape) in outputs.items()
            ],
            [*self._constants.values()],
        )
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=_IR_VERSION)
        model.producer_name = "albert_tf"
        self._onnx.checker.check_model(model)
        return model


def import_onnx() -> Any:
    """Return the package.

    Raises:
      InputError: it is missing; names the extra.
    """
    return extras.load("onnx", "onnx", "--format=onnx")
