"""Asks an export through TensorFlow's C API, as a server without Python would.

    python -I examples/c_api.py export/reviews/1 '{"text": ["a gripping story"]}'

Prints the outputs of the signature `serving_default` as JSON. Of Python it uses ctypes and the
standard library alone: TensorFlow's libraries are found in its package and never imported.
"""

import ctypes
import glob
import importlib.util
import json
import os
import struct
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Any

FLOAT, INT32, STRING, INT64, BOOL = 1, 3, 7, 9, 10  # TF_DataType
_FORMATS = {FLOAT: "f", INT32: "i", INT64: "q", BOOL: "?"}
_TSTRING_BYTES = 24


class Output(ctypes.Structure):
    """TF_Output: an output of an operation of the graph."""

    _fields_ = [("operation", c_void_p), ("index", c_int)]


class Buffer(ctypes.Structure):
    """TF_Buffer."""

    _fields_ = [("data", c_void_p), ("length", c_size_t), ("deallocate", c_void_p)]


class Session:
    """A SavedModel in a C++ session.

    Args:
      path: OUTPUT/VERSION.

    Attributes:
      signatures: name -> (inputs, outputs), each name -> (tensor's name, data type).

    Raises:
      RuntimeError: what TensorFlow says, here and wherever it is asked.
    """

    def __init__(self, path: str) -> None:
        self._c, text_ops = _libraries()
        self._status = self._c.TF_NewStatus()
        for library in text_ops:
            self._c.TF_LoadLibrary(library.encode(), self._status)
            self._check()
        self._graph = self._c.TF_NewGraph()
        meta = Buffer()
        tags = (c_char_p * 1)(b"serve")
        self._session = self._c.TF_LoadSessionFromSavedModel(
            self._c.TF_NewSessionOptions(), None, path.encode(), tags, 1, self._graph,
            byref(meta), self._status,
        )  # fmt: skip
        self._check()
        self.signatures = _signatures(ctypes.string_at(meta.data, meta.length))

    def run(self, inputs: dict[str, Any], signature: str = "serving_default") -> dict[str, Any]:
        """Nested lists in, nested lists out; strings out are bytes."""
        places, results = self.signatures[signature]
        tensors = [self._tensor(inputs[name], places[name][1]) for name in places]
        feeds = (Output * len(places))(*(self._output(places[name][0]) for name in places))
        fetches = (Output * len(results))(*(self._output(results[name][0]) for name in results))
        values, out = (c_void_p * len(places))(*tensors), (c_void_p * len(results))()
        self._c.TF_SessionRun(
            self._session, None, feeds, values, len(places), fetches, out, len(results), None, 0,
            None, self._status,
        )  # fmt: skip
        for tensor in tensors:
            self._c.TF_DeleteTensor(tensor)
        self._check()
        return {name: self._values(tensor) for name, tensor in zip(results, out, strict=True)}

    def _check(self) -> None:
        if self._c.TF_GetCode(self._status):
            raise RuntimeError(self._c.TF_Message(self._status).decode(errors="replace"))

    def _output(self, name: str) -> Output:
        operation, _, index = name.partition(":")
        found = self._c.TF_GraphOperationByName(self._graph, operation.encode())
        return Output(found, int(index or 0))

    def _tensor(self, values: Any, dtype: int) -> int:
        shape, flat = _flattened(values)
        size = _TSTRING_BYTES if dtype == STRING else struct.calcsize(_FORMATS[dtype])
        dims = (c_int64 * len(shape))(*shape)
        tensor = self._c.TF_AllocateTensor(dtype, dims, len(shape), size * len(flat))
        data = self._c.TF_TensorData(tensor)
        if dtype != STRING:
            packed = struct.pack(f"{len(flat)}{_FORMATS[dtype]}", *flat)
            ctypes.memmove(data, packed, len(packed))
            return tensor
        for number, text in enumerate(flat):
            value = text if isinstance(text, bytes) else text.encode()
            place = data + number * _TSTRING_BYTES
            self._c.TF_StringInit(place)
            self._c.TF_StringCopy(place, value, len(value))
        return tensor

    def _values(self, tensor: int) -> Any:
        dtype, data = self._c.TF_TensorType(tensor), self._c.TF_TensorData(tensor)
        shape = [self._c.TF_Dim(tensor, i) for i in range(self._c.TF_NumDims(tensor))]
        count = self._c.TF_TensorElementCount(tensor)
        if dtype == STRING:
            places = [data + i * _TSTRING_BYTES for i in range(count)]
            flat: list = [
                ctypes.string_at(
                    self._c.TF_StringGetDataPointer(place), self._c.TF_StringGetSize(place)
                )
                for place in places
            ]
        else:
            raw = ctypes.string_at(data, self._c.TF_TensorByteSize(tensor)) if count else b""
            flat = list(struct.unpack(f"{count}{_FORMATS[dtype]}", raw))
        self._c.TF_DeleteTensor(tensor)
        return _nested(flat, shape)


def _libraries() -> tuple[ctypes.CDLL, list[str]]:
    """TensorFlow, with the types of what is called; the files of TensorFlow Text's operations."""
    here, text = (
        os.path.dirname(str(importlib.util.find_spec(name).origin))  # type: ignore[union-attr]
        for name in ("tensorflow", "tensorflow_text")
    )
    ctypes.CDLL(os.path.join(here, "libtensorflow_framework.so.2"), ctypes.RTLD_GLOBAL)
    c = ctypes.CDLL(os.path.join(here, "libtensorflow_cc.so.2"), ctypes.RTLD_GLOBAL)
    pointers = (
        "NewStatus", "NewGraph", "NewSessionOptions", "LoadLibrary", "LoadSessionFromSavedModel",
        "GraphOperationByName", "AllocateTensor", "TensorData", "StringGetDataPointer",
    )  # fmt: skip
    for name in pointers:
        getattr(c, f"TF_{name}").restype = c_void_p
    for name in ("Dim", "TensorElementCount"):
        getattr(c, f"TF_{name}").restype = c_int64
    for name in ("TensorByteSize", "StringGetSize"):
        getattr(c, f"TF_{name}").restype = c_size_t
    c.TF_Message.restype = c_char_p
    size, place = c_size_t, c_void_p
    arguments = {
        "LoadLibrary": [c_char_p, place], "GetCode": [place], "Message": [place],
        "LoadSessionFromSavedModel": [
            place, place, c_char_p, POINTER(c_char_p), c_int, place, POINTER(Buffer), place,
        ],
        "GraphOperationByName": [place, c_char_p], "TensorData": [place], "TensorType": [place],
        "AllocateTensor": [c_int, POINTER(c_int64), c_int, size], "DeleteTensor": [place],
        "StringInit": [place], "StringCopy": [place, c_char_p, size], "StringGetSize": [place],
        "StringGetDataPointer": [place], "NumDims": [place], "Dim": [place, c_int],
        "TensorElementCount": [place], "TensorByteSize": [place],
        "SessionRun": [
            place, place, POINTER(Output), POINTER(place), c_int, POINTER(Output), POINTER(place),
            c_int, place, c_int, place, place,
        ],
    }  # fmt: skip
    for name, types in arguments.items():
        getattr(c, f"TF_{name}").argtypes = types
    return c, sorted(glob.glob(os.path.join(text, "**", "*.so"), recursive=True))


def _signatures(meta_graph: bytes) -> dict[str, tuple[dict, dict]]:
    """Of a serialized MetaGraphDef: field 5 is a map to SignatureDef, whose 1 and 2 are maps to
    TensorInfo, whose 1 is a name and 2 a type. A map is a repeated message of key 1 and value 2.
    """
    found = {}
    for entry in _fields(meta_graph).get(5, []):
        parts = _fields(entry)
        tensors: list[dict[str, tuple[str, int]]] = [{}, {}]
        for side, pairs in enumerate(tensors):
            for pair in _fields(parts[2][0]).get(side + 1, []):
                key, value = _fields(pair)[1][0].decode(), _fields(_fields(pair)[2][0])
                if 1 in value:
                    pairs[key] = value[1][0].decode(), value.get(2, [0])[0]
        found[parts[1][0].decode()] = tensors[0], tensors[1]
    return found


def _fields(message: bytes) -> dict[int, list[Any]]:
    """Protocol buffers' wire format: field number -> its values, bytes or integers."""
    fields: dict[int, list[Any]] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            value: Any = varint()
        else:
            size = varint() if kind == 2 else {1: 8, 5: 4}[kind]
            value = message[at : at + size]
            at += size
        fields.setdefault(number, []).append(value)
    return fields


def _flattened(values: Any) -> tuple[list[int], list]:
    shape, flat = [], values
    while isinstance(values, list | tuple):
        shape.append(len(values))
        if not values:
            break
        values = values[0]
    for _ in shape[1:]:
        flat = [value for row in flat for value in row]
    return shape, list(flat) if shape else [flat]


def _nested(flat: list, shape: list[int]) -> Any:
    if not shape:
        return flat[0]
    for size in reversed(shape[1:]):
        count = len(flat) // size if size else 0
        flat = [flat[i * size : (i + 1) * size] for i in range(count)]
    return flat


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print("usage: python -I c_api.py OUTPUT/VERSION JSON_OF_INPUTS")
        sys.exit(2)
    outputs = Session(sys.argv[1]).run(json.loads(sys.argv[2]))
    print(json.dumps(outputs, default=lambda value: value.decode(errors="replace")))
