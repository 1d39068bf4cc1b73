"""Query an export through TensorFlow's C API, as a server without Python would.

    python -I examples/c_api.py export/reviews/1 '{"text": ["a gripping story"]}' [SIGNATURE]

The output is that of the signature, by default `serving_default`, as JSON. The script uses only
ctypes and the standard library: it loads TensorFlow's libraries from its package, which it never
imports.
"""

import contextlib
import ctypes
import glob
import importlib.util
import json
import math
import os
import struct
import sys
from ctypes import byref, c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Any, NoReturn

FLOAT, INT32, STRING, INT64, BOOL = 1, 3, 7, 9, 10  # TF_DataType
_FORMATS = {FLOAT: "f", INT32: "i", INT64: "q", BOOL: "?"}
_TSTRING_BYTES = 24

_TYPES = {"v": None, "p": c_void_p, "s": c_char_p, "i": c_int, "q": c_int64, "z": c_size_t}
_CALLS = {  # function TF_...: the types of its result and of its arguments
    "NewStatus": "p",
    "GetCode": "ip",
    "Message": "sp",
    "DeleteStatus": "vp",
    "LoadLibrary": "psp",
    "DeleteLibraryHandle": "vp",
    "NewGraph": "p",
    "DeleteGraph": "vp",
    "NewSessionOptions": "p",
    "DeleteSessionOptions": "vp",
    "NewBuffer": "p",
    "DeleteBuffer": "vp",
    "LoadSessionFromSavedModel": "pppspippp",
    "SessionRun": "vppppippipipp",
    "DeleteSession": "vpp",
    "GraphOperationByName": "pps",
    "AllocateTensor": "pipiz",
    "TensorType": "ip",
    "NumDims": "ip",
    "Dim": "qpi",
    "TensorData": "pp",
    "TensorByteSize": "zp",
    "DeleteTensor": "vp",
    "StringInit": "vp",
    "StringCopy": "vpsz",
    "StringGetSize": "zp",
    "StringGetDataPointer": "pp",
}


class Output(ctypes.Structure):
    """TF_Output: an output of an operation of the graph."""

    _fields_ = [("operation", c_void_p), ("index", c_int)]


class Session(contextlib.AbstractContextManager):
    """The export in OUTPUT/VERSION as a C++ session; several threads may call `run` at a time.

    `close` or `with` frees it, once no thread uses it any more.

    Attributes:
      signatures: name -> (inputs, outputs), each name -> (tensor's name, data type).

    Raises:
      RuntimeError: an error of TensorFlow, here and in `run`.
    """

    def __init__(self, path: str) -> None:
        self._c, text_ops = _libraries()
        self._status, self._graph = self._c.TF_NewStatus(), self._c.TF_NewGraph()
        self._session = None
        options, meta = self._c.TF_NewSessionOptions(), self._c.TF_NewBuffer()
        try:
            for library in text_ops:
                loaded = self._c.TF_LoadLibrary(library.encode(), self._status)
                self._c.TF_DeleteLibraryHandle(loaded)  # its operations stay registered
                self._check(self._status)
            tags = byref(c_char_p(b"serve"))
            self._session = self._c.TF_LoadSessionFromSavedModel(
                options, None, path.encode(), tags, 1, self._graph, meta, self._status
            )
            self._check(self._status)
            data, length = (c_size_t * 2).from_address(meta)  # the first fields of TF_Buffer
            self.signatures = _signatures(ctypes.string_at(data, length))
        except BaseException:
            self.close()
            raise
        finally:
            self._c.TF_DeleteSessionOptions(options)
            self._c.TF_DeleteBuffer(meta)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model; a second call does nothing."""
        if self._session:
            self._c.TF_DeleteSession(self._session, self._status)
        self._c.TF_DeleteGraph(self._graph)
        self._c.TF_DeleteStatus(self._status)
        self._session = self._graph = self._status = None

    def run(self, inputs: dict[str, Any], signature: str = "serving_default") -> dict[str, Any]:
        """Run a signature on nested lists and return nested lists; strings are returned as bytes.

        Raises:
          ValueError: the session is closed, has no such signature or has other inputs, or lists are
            ragged or hold other values than the input takes.
        """
        places, results = self._feeds_and_fetches(inputs, signature)
        feeds = (Output * len(places))(*(self._output(name) for name, _ in places.values()))
        fetches = (Output * len(results))(*(self._output(name) for name, _ in results.values()))
        values, out = (c_void_p * len(places))(), (c_void_p * len(results))()
        status = self._c.TF_NewStatus()
        try:
            for number, (name, (_, dtype)) in enumerate(places.items()):
                values[number] = self._tensor(inputs[name], dtype)
            self._c.TF_SessionRun(
                self._session,
                None,
                feeds,
                values,
                len(places),
                fetches,
                out,
                len(results),
                None,
                0,
                None,
                status,
            )
            self._check(status)
            return {name: self._values(tensor) for name, tensor in zip(results, out, strict=True)}
        finally:
            self._c.TF_DeleteStatus(status)
            for tensor in filter(None, [*values, *out]):
                self._c.TF_DeleteTensor(tensor)

    def _feeds_and_fetches(self, inputs: dict[str, Any], signature: str) -> tuple[dict, dict]:
        """Return the inputs and outputs of the signature."""
        if self._session is None:
            raise ValueError("The session is closed.")
        if signature not in self.signatures:
            raise ValueError(f"The signatures are {sorted(self.signatures)}, not {signature!r}.")
        places, results = self.signatures[signature]
        if inputs.keys() != places.keys():
            raise ValueError(f"The inputs are {sorted(places)}, not {sorted(inputs)}.")
        return places, results

    def _check(self, status: int) -> None:
        if self._c.TF_GetCode(status):
            raise RuntimeError(self._c.TF_Message(status).decode(errors="replace"))

    def _output(self, name: str) -> Output:
        operation, _, index = name.partition(":")
        handle = self._c.TF_GraphOperationByName(self._graph, operation.encode())
        return Output(handle, int(index or 0))

    def _tensor(self, values: Any, dtype: int) -> int:
        shape, flat = _flattened(values)
        texts, packed = [], b""
        try:
            if dtype == STRING:
                texts = [text if isinstance(text, bytes) else text.encode() for text in flat]
            else:
                packed = struct.pack(f"{len(flat)}{_FORMATS[dtype]}", *flat)
        except (AttributeError, struct.error) as error:
            kind = "strings" if dtype == STRING else f"numbers of the format {_FORMATS[dtype]!r}"
            raise ValueError(f"The values must be {kind}: {error}.") from None
        size, dims = len(packed) + _TSTRING_BYTES * len(texts), (c_int64 * len(shape))(*shape)
        tensor = self._c.TF_AllocateTensor(dtype, dims, len(shape), size)
        data = self._c.TF_TensorData(tensor)
        ctypes.memmove(data, packed, len(packed))
        for number, text in enumerate(texts):
            address = data + number * _TSTRING_BYTES
            self._c.TF_StringInit(address)
            self._c.TF_StringCopy(address, text, len(text))
        return tensor

    def _values(self, tensor: int) -> Any:
        dtype, data = self._c.TF_TensorType(tensor), self._c.TF_TensorData(tensor)
        shape = [self._c.TF_Dim(tensor, i) for i in range(self._c.TF_NumDims(tensor))]
        count = math.prod(shape)
        if dtype == STRING:
            at, size = self._c.TF_StringGetDataPointer, self._c.TF_StringGetSize
            addresses = [data + number * _TSTRING_BYTES for number in range(count)]
            flat = [ctypes.string_at(at(address), size(address)) for address in addresses]
        else:
            raw = ctypes.string_at(data, self._c.TF_TensorByteSize(tensor)) if count else b""
            flat = list(struct.unpack(f"{count}{_FORMATS[dtype]}", raw))
        return _nested(flat, shape)


def _libraries() -> tuple[ctypes.CDLL, list[str]]:
    """Return TensorFlow's library and the files of TensorFlow Text's operations.

    The functions of the library have the types in `_CALLS`.
    """
    here, text = (
        os.path.dirname(str(importlib.util.find_spec(name).origin))  # type: ignore[union-attr]
        for name in ("tensorflow", "tensorflow_text")
    )
    suffix = "2.dylib" if sys.platform == "darwin" else "so.2"
    ctypes.CDLL(os.path.join(here, f"libtensorflow_framework.{suffix}"), ctypes.RTLD_GLOBAL)
    c = ctypes.CDLL(os.path.join(here, f"libtensorflow_cc.{suffix}"), ctypes.RTLD_GLOBAL)
    for name, types in _CALLS.items():
        call = getattr(c, f"TF_{name}")
        call.restype, *call.argtypes = (_TYPES[letter] for letter in types)
    return c, sorted(glob.glob(os.path.join(text, "**", "*.so"), recursive=True))


def _signatures(meta_graph: bytes) -> dict[str, tuple[dict, dict]]:
    """Return the signatures in a serialized MetaGraphDef.

    Field 5 is a map to SignatureDef, whose fields 1 and 2 are maps to TensorInfo, whose field 1 is
    a name and field 2 a type. A map is a repeated message with key 1 and value 2.
    """

    def entries(message: dict[int, list[Any]], field: int) -> dict[str, dict[int, list[Any]]]:
        pairs = map(_fields, message.get(field, []))
        return {pair[1][0].decode(): _fields(pair[2][0]) for pair in pairs}

    def tensors(signature: dict[int, list[Any]], side: int) -> dict[str, tuple[str, int]]:
        infos = entries(signature, side).items()
        return {name: (info[1][0].decode(), info[2][0]) for name, info in infos if 2 in info}

    signatures = entries(_fields(meta_graph), 5).items()
    return {name: (tensors(signature, 1), tensors(signature, 2)) for name, signature in signatures}


def _fields(message: bytes) -> dict[int, list[Any]]:
    """Parse protocol buffers' wire format: field number -> its values, bytes or integers."""
    fields: dict[int, list[Any]] = {}
    offset = 0

    def varint() -> int:
        nonlocal offset
        byte, offset = message[offset], offset + 1
        return byte if byte < 128 else byte - 128 + (varint() << 7)

    while offset < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            value: Any = varint()
        else:
            size = varint() if kind == 2 else {1: 8, 5: 4}[kind]
            value = message[offset : offset + size]
            offset += size
        fields.setdefault(number, []).append(value)
    return fields


def _flattened(values: Any) -> tuple[list[int], list]:
    """Return the shape and the values of nested lists; a single value has the shape []."""
    shape: list[int] = []
    flat = [values]
    while any(isinstance(row, list | tuple) for row in flat):
        sizes = {len(row) if isinstance(row, list | tuple) else "none" for row in flat}
        if len(sizes) > 1:
            raise ValueError(f"Nested lists must have equal lengths. Received: {sizes}.")
        shape.append(len(flat[0]))
        flat = [value for row in flat for value in row]
    return shape, flat


def _nested(flat: list, shape: list[int]) -> Any:
    if len(shape) < 2:
        return flat if shape else flat[0]
    size = math.prod(shape[1:])
    return [_nested(flat[i * size : (i + 1) * size], shape[1:]) for i in range(shape[0])]


def main(path: str, inputs: str, *signature: str) -> None:
    """Print the outputs of the export at `path` for `inputs` in JSON."""
    try:
        values = json.loads(inputs)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        _stop(f'the inputs must be a JSON object, as {{"text": ["dull"]}}. Received: {inputs}')
    if not os.path.isfile(os.path.join(path, "saved_model.pb")):
        _stop(f"no saved_model.pb in {path!r}: it must be the folder OUTPUT/VERSION")
    try:
        with Session(path) as session:
            outputs = session.run(values, *signature)
    except (RuntimeError, ValueError) as error:
        _stop(str(error))
    print(json.dumps(outputs, default=lambda value: value.decode(errors="replace")))


def _stop(reason: str) -> NoReturn:
    print("c_api.py: error:", *reason.splitlines()[:1], file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        print(
            "usage: python -I c_api.py OUTPUT/VERSION JSON_OF_INPUTS [SIGNATURE]", file=sys.stderr
        )
        sys.exit(2)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main(*sys.argv[1:])
