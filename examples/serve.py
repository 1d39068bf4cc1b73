"""Serve exports over HTTP in the REST format of TensorFlow Serving, without this project.

    python examples/serve.py localhost:8501 reviews=export/reviews squad=export/squad
    curl http://localhost:8501/v1/models/reviews:predict -d '{"instances": ["a gripping story"]}'

Each NAME=FOLDER serves the newest version in the folder. The paths are those of TensorFlow Serving:
`/v1/models/NAME` for the status, `NAME/metadata` for the signatures, `NAME:predict` and
`NAME:classify`, with `/versions/N` after the name if you like. This is for tests and small
services: requests are not merged into batches, and new versions need a restart. Copy this file to
wherever the models are served.
"""

import base64
import contextlib
import http.server
import json
import os
import re
import reprlib
import signal
import socket
import sys
import threading
import time
import traceback
import urllib.parse
from collections.abc import Callable
from typing import Any, NoReturn

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402
import tensorflow_text  # noqa: E402, F401  registers the tokenizer's operations
from google.protobuf.json_format import MessageToDict  # noqa: E402
from tensorflow.core.protobuf import saved_model_pb2  # noqa: E402

MAX_BYTES = 8 * 2**20  # of a request
MAX_IDS = 2**16  # of an input: 128 texts of 512 pieces
MAX_VALUES = 8 * 2**20  # of an answer, about 20 bytes each
MAX_WAITING = 64  # requests for the models; more are refused
MAX_CONNECTIONS = 128  # more are closed; each may hold MAX_BYTES
MAX_RANK = 254  # of a tensor, if the signature leaves it open; TensorFlow aborts above
TIMEOUT_S = 60.0  # for a request to arrive, and for an answer to leave
STOP_S = 30.0  # at most, for the answers to requests that have arrived
MAX_DISCARDED, DISCARD_S = 4 * MAX_BYTES, 1.0  # of what arrives after the last answer
_PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?(?::(predict|classify)|/(metadata))?")
_HTTP_CODES = {tf.errors.NotFoundError: 404, tf.errors.ResourceExhaustedError: 429}  # else 400


class BadRequestError(Exception):
    """A request that the client must change or, with the code 503, send later."""

    def __init__(self, message: str, code: int = 400) -> None:
        super().__init__(message)
        self.code = code


class ServedModel:
    """The newest version of an export."""

    def __init__(self, folder: str) -> None:
        versions = [int(name) for name in os.listdir(folder) if name.isdigit()]
        if not versions:
            raise FileNotFoundError(f"{folder!r} has no version: no folder such as {folder}/1")
        self.version = max(versions)
        path = os.path.join(folder, str(self.version))
        self._loaded = tf.saved_model.load(path)
        with open(os.path.join(path, "saved_model.pb"), "rb") as file:
            saved = saved_model_pb2.SavedModel.FromString(file.read())
        options = dict(preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        signatures = saved.meta_graphs[0].signature_def.items()
        self._signatures = {name: MessageToDict(each, **options) for name, each in signatures}

    def metadata(self, name: str) -> dict[str, Any]:
        """Return the signatures, with the name under which the model is served."""
        spec = {"name": name, "signature_name": "", "version": str(self.version)}
        signatures = {"signature_def": self._signatures}
        return {"model_spec": spec, "metadata": {"signature_def": signatures}}

    def predict(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request of the Predict API, in rows (`instances`) or columns (`inputs`)."""
        signature, specs = self._signature(request, "serving_default")
        if (by_row := "instances" in request) == ("inputs" in request):
            raise BadRequestError("the request must have either `instances` or `inputs`")
        columns = _columns(request["instances"], specs) if by_row else request["inputs"]
        if not isinstance(columns, dict) or set(columns) == {"b64"}:
            columns = {_only(specs): columns}
        if set(columns) != set(specs):
            raise BadRequestError(f"the inputs are {sorted(specs)}. Received: {sorted(columns)}")
        tensors = {name: _tensor(specs[name], columns[name]) for name in specs}
        values = _values(signature(**tensors))
        if not by_row:
            return {"outputs": values if len(values) > 1 else values.popitem()[1]}
        if len(values) == 1:
            return {"predictions": values.popitem()[1]}
        rows = zip(*values.values(), strict=True)
        return {"predictions": [dict(zip(values, row, strict=True)) for row in rows]}

    def classify(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request of the Classify API."""
        signature, specs = self._signature(request, "classify")
        examples = request.get("examples")
        if not isinstance(examples, list) or not examples:
            raise BadRequestError("`examples` must be a list of at least one object")
        if not {"classes", "scores"} <= set(signature.structured_outputs):
            raise BadRequestError("`signature_name` must be a signature for classification")
        serialized = tf.constant([_example(example).SerializeToString() for example in examples])
        values = _values(signature(**{_only(specs): serialized}))
        rows = zip(values["classes"], values["scores"], strict=True)
        return {"results": [list(zip(*row, strict=True)) for row in rows]}

    def _signature(self, request: dict[str, Any], default: str) -> tuple[Any, dict[str, Any]]:
        name, names = request.get("signature_name", default), sorted(self._loaded.signatures)
        if name not in names:  # it may be any JSON value
            raise BadRequestError(f"the signatures are {names}. Received: {reprlib.repr(name)}")
        signature = self._loaded.signatures[name]
        return signature, signature.structured_input_signature[1]


def _only(specs: dict[str, Any]) -> str:
    if len(specs) > 1:
        raise BadRequestError(f"this signature has the inputs {sorted(specs)}: name each of them")
    return next(iter(specs))


def _columns(rows: Any, specs: dict[str, Any]) -> dict[str, list[Any]]:
    if not isinstance(rows, list) or not rows:
        raise BadRequestError("`instances` must be a list of at least one instance")
    if not (isinstance(rows[0], dict) and set(rows[0]) != {"b64"}):
        return {_only(specs): rows}
    if any(not isinstance(row, dict) or set(row) != set(rows[0]) for row in rows):
        raise BadRequestError("all instances must be objects with the same names")
    return {name: [row[name] for row in rows] for name in rows[0]}


def _tensor(spec: tf.TensorSpec, value: Any) -> tf.Tensor:
    dtype, rank = spec.dtype, MAX_RANK if spec.shape.rank is None else spec.shape.rank
    if _is_deeper(value, rank):
        raise BadRequestError(f"`{spec.name}` must have lists nested at most {rank} deep")
    try:
        tensor = tf.constant(_decoded(value), tf.int64 if dtype.is_integer else dtype)
        if dtype.is_integer and tf.reduce_any((tensor < dtype.min) | (tensor > dtype.max)):
            raise OverflowError(f"the values must be between {dtype.min} and {dtype.max}")
        tensor = tf.cast(tensor, dtype)  # `tf.constant` would silently drop bits
    except (TypeError, ValueError, OverflowError) as error:
        raise BadRequestError(f"`{spec.name}` must be {dtype.name}: {error}") from None
    if not spec.shape.is_compatible_with(tensor.shape):
        raise BadRequestError(
            f"`{spec.name}` must have the shape {spec.shape}. Received: {tensor.shape}"
        )
    if dtype.is_integer and tensor.shape.num_elements() > MAX_IDS:
        raise BadRequestError(f"`{spec.name}` must have at most {MAX_IDS} integers", 413)
    return tensor


def _is_deeper(value: Any, depth: int) -> bool:
    """Return whether lists are nested deeper, level by level: recursion would end at 1000."""
    level = [value]
    for _ in range(depth):
        level = [item for row in level if isinstance(row, list) for item in row]
    return any(isinstance(item, list) for item in level)


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if isinstance(value, dict):
        if set(value) != {"b64"}:
            raise ValueError('an object must be {"b64": bytes in base64}')
        return base64.b64decode(value["b64"], validate=True)
    return value


def _values(outputs: dict[str, tf.Tensor]) -> dict[str, Any]:
    if sum(value.shape.num_elements() for value in outputs.values()) > MAX_VALUES:
        raise BadRequestError(f"the answer has more than {MAX_VALUES} values: send fewer rows", 413)
    return {name: _plain(value.numpy()) for name, value in outputs.items()}


def _plain(value: Any) -> Any:
    """Return an array as lists; bytes that are not UTF-8 become {"b64": ...}."""
    if not isinstance(value, bytes):
        return [_plain(item) for item in value] if value.dtype == object else value.tolist()
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}


def _example(values: Any) -> tf.train.Example:
    example = tf.train.Example()
    if not isinstance(values, dict):
        raise BadRequestError("each of `examples` must be an object")
    for name, value in values.items():
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, str):
                raise BadRequestError(f"`{name}` must be a string. Received: {reprlib.repr(item)}")
            try:
                example.features.feature[name].bytes_list.value.append(item.encode())
            except UnicodeEncodeError as error:
                raise BadRequestError(f"`{name}` is not Unicode: {error}") from None
    return example


def _json(body: dict[str, Any]) -> bytes:
    """Return UTF-8, in which lone surrogates of a reason are JSON's escapes."""
    return json.dumps(body, ensure_ascii=False).encode(errors="backslashreplace")


class Server(http.server.ThreadingHTTPServer):
    """An HTTP server for models by name; each request has a thread."""

    daemon_threads = True
    request_queue_size = MAX_WAITING

    def __init__(self, address: tuple[str, int], models: dict[str, ServedModel]) -> None:
        super().__init__(address, _Handler)
        self.models = models
        self.free = threading.BoundedSemaphore(MAX_WAITING)
        self.connections: dict[socket.socket, float] = {}  # and since when each may send a request

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, unless there are too many."""
        if len(self.connections) >= MAX_CONNECTIONS:
            return super().close_request(request)
        self.connections[request] = time.monotonic()
        super().process_request(request, client_address)

    def service_actions(self, timeout_s: float = TIMEOUT_S) -> None:
        """End the connections whose requests have not arrived in time; the base class calls it."""
        for connection, since in list(self.connections.items()):
            if time.monotonic() - since > timeout_s:
                with contextlib.suppress(OSError):  # the client is gone
                    connection.shutdown(socket.SHUT_RD)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback, unless the client has gone."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def close_request(self, request: Any) -> None:
        """Discard what still arrives: if it were unread, the client might not get the answer."""
        left, end = MAX_DISCARDED, time.monotonic() + DISCARD_S
        with contextlib.suppress(OSError):  # the client is gone, or the time is up
            while left > 0:
                request.settimeout(max(0, end - time.monotonic()))
                left -= len(request.recv(65536)) or left  # nothing: the client has closed
        super().close_request(request)
        self.connections.pop(request, None)

    def stop(self) -> None:
        """Stop listening, and wait for the answers to requests that have arrived."""
        self.server_close()
        end = time.monotonic() + STOP_S
        while self.connections and time.monotonic() < end:
            self.service_actions(0.0)  # their threads end after the answers
            time.sleep(0.01)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = TIMEOUT_S
    default_request_version = "HTTP/1.1"  # also malformed requests get a status and headers
    disable_nagle_algorithm = True  # or the body would wait 40 ms for an answer to the headers
    server: Server

    def do_GET(self) -> None:
        self._answer(self._describe)

    do_HEAD = do_GET  # noqa: N815  for health checks; `_send` leaves the body out

    def do_POST(self) -> None:
        self._answer(self._run)

    def _answer(self, run: Callable[[], bytes]) -> None:
        try:
            code, data = 200, run()
        except BadRequestError as error:
            code, data = error.code, _json({"error": str(error)})
        except tf.errors.OpError as error:  # whose reason stands between places in the graph
            reason = error.message.rpartition("unavailable>\n")[2].partition("\n\t [[")[0]
            code, data = _HTTP_CODES.get(type(error), 400), _json({"error": reason})
        except (ConnectionError, TimeoutError):
            raise  # nobody waits for an answer
        except Exception as error:
            traceback.print_exc()
            code, data = 500, _json({"error": f"{type(error).__name__}: {error}"})
        self._send(code, data)
        self.server.connections[self.connection] = time.monotonic()

    def _model(self, wants_method: bool) -> tuple[ServedModel, re.Match[str]]:
        path = urllib.parse.unquote(self.path.encode("latin-1").decode("utf-8", "replace"))
        if not (match := _PATH.fullmatch(path)):
            raise BadRequestError(f"unknown path {path!r}", 404)
        if bool(match[3]) != wants_method:
            raise BadRequestError(f"Malformed request: {self.command} {path}")
        model = self.server.models.get(match[1])
        if model is None or match[2] not in (None, str(model.version)):
            names = [f"{name}/versions/{m.version}" for name, m in self.server.models.items()]
            raise BadRequestError(f"unknown model; there are {', '.join(sorted(names))}", 404)
        return model, match

    def _describe(self) -> bytes:
        self._body()  # or it would be the next request
        model, match = self._model(wants_method=False)
        if match[4]:
            return _json(model.metadata(match[1]))
        status = {"error_code": "OK", "error_message": ""}
        version = {"version": str(model.version), "state": "AVAILABLE", "status": status}
        return _json({"model_version_status": [version]})

    def _run(self) -> bytes:
        body = self._body()
        if not self.server.free.acquire(blocking=False):
            raise BadRequestError(f"more than {MAX_WAITING} requests are waiting", 503)
        try:
            model, match = self._model(wants_method=True)
            try:
                request = json.loads(body)
            except (ValueError, RecursionError) as error:
                raise BadRequestError(f"the request is not JSON: {error}") from None
            if not isinstance(request, dict):
                raise BadRequestError("the request must be a JSON object")
            return _json(getattr(model, match[3])(request))
        finally:
            self.server.free.release()

    def _body(self) -> bytes:
        missing = [] if self.command == "POST" else ["0"]
        length = ",".join(self.headers.get_all("Content-Length", missing))
        closes, self.close_connection = self.close_connection, True  # if the body is not read
        if self.headers.defects:  # the parser drops the headers after a malformed line
            raise BadRequestError("the headers are malformed")
        if "Transfer-Encoding" in self.headers or not re.fullmatch("[0-9]+", length):
            raise BadRequestError("the body must have one Content-Length, a number of bytes", 411)
        if len(length) > 18 or int(length) > MAX_BYTES:
            raise BadRequestError(f"a request must have at most {MAX_BYTES} bytes", 413)
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise BadRequestError(f"the request did not arrive within {TIMEOUT_S:g} s", 408)
        self.server.connections[self.connection] = float("inf")  # until it is answered
        self.close_connection = closes
        return body

    def _send(self, code: int, data: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what the base class does not understand: a method, a request line, a header."""
        self.close_connection = True  # the body has not been read
        self._send(code, _json({"error": message or self.responses[code][0]}))

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


def main(address: str, models: list[str]) -> None:
    """Serve models, each NAME=FOLDER, at HOST:PORT until interrupted; then end the answers."""
    folders = {}
    for model in models:
        name, _, folder = model.partition("=")
        if not folder or not re.fullmatch("[^/:]+", name):
            _stop(f"{model!r} must be NAME=FOLDER, with a name without '/' and ':'")
        if not os.path.isdir(folder):
            _stop(f"{model!r}: there is no folder {folder!r}")
        folders[name] = folder
    server = _listening(address)  # clients wait until the models are loaded
    with contextlib.suppress(KeyboardInterrupt):
        for name, folder in folders.items():
            try:
                server.models[name] = ServedModel(folder)
            except (OSError, tf.errors.OpError) as error:
                _stop(f"'{name}={folder}': {error}")
        host, port = address.rpartition(":")[0], server.server_port
        print(f"serving {', '.join(folders)} on http://{host}:{port}", flush=True)
        server.serve_forever()
    with contextlib.suppress(KeyboardInterrupt):  # a second one ends it at once
        server.stop()


def _listening(address: str) -> Server:
    match = re.fullmatch("(.+):([0-9]{1,5})", address)
    if not match or int(match[2]) > 65535:
        _stop(f"{address!r} must be HOST:PORT, with a port from 0 (any free one) to 65535")
    try:
        return Server((match[1], int(match[2])), {})
    except (OSError, UnicodeError) as error:  # unknown host, port in use
        _stop(f"cannot listen on {address!r}: {error}")


def _stop(reason: str) -> NoReturn:
    print("serve.py: error:", *reason.splitlines()[:1], file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        print("usage: python serve.py HOST:PORT NAME=FOLDER...", file=sys.stderr)
        sys.exit(2)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, also in containers
    main(sys.argv[1], sys.argv[2:])
