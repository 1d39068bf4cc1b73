"""examples/serve.py over real sockets: answers, errors, and requests at the same time."""

import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import runpy
import signal
import socket
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tensorflow as tf

from examples import serve
from examples.serve import BadRequestError, ServedModel, Server

TEXTS = ("the value of [MASK] object", "[MASK] is a [MASK].", "no mask", "naïve [MASK] 漢字")
IDS = {"input_word_ids": [[2, 7, 3]], "input_mask": [[1, 1, 1]], "input_type_ids": [[0, 0, 0]]}
HEAD = b"POST /v1/models/echo:predict HTTP/1.1\r\nContent-Length: 8\r\n\r\n"
Ask = Callable[..., tuple[int, dict]]


@pytest.fixture(scope="module")
def server(exports: pathlib.Path) -> Iterator[Server]:
    models = {name: ServedModel(str(exports / name)) for name in ("fill_mask", "encoder")}
    models["отзывы"] = models["fill_mask"]
    server = Server(("localhost", 0), models)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def ask(server: Server) -> Ask:
    def ask(path: str, body: object = None, headers: dict | None = None) -> tuple[int, dict]:
        connection = http.client.HTTPConnection("localhost", server.server_port, timeout=60)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        method = "GET" if body is None else "POST"
        connection.request(method, f"/v1/models/{path}", data, headers or {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    return ask


@pytest.mark.slow
def test_a_model_whose_name_is_not_ascii(ask: Ask):
    for name in ("отзывы", "fill_mask"):
        assert ask(urllib.parse.quote(name))[0] == 200


@pytest.mark.slow
def test_rows_and_columns_have_the_same_answer(ask: Ask):
    for rows in (TEXTS, [{"text": text} for text in TEXTS]):
        code, by_row = ask("fill_mask:predict", {"instances": rows})
        assert code == 200 and len(by_row["predictions"]) == len(TEXTS)
        for columns in ({"text": TEXTS}, TEXTS):
            code, by_column = ask("fill_mask/versions/1:predict", {"inputs": columns})
            assert code == 200
            for name, values in by_column["outputs"].items():
                assert values == [row[name] for row in by_row["predictions"]]
    assert np.shape(by_row["predictions"][0]["pieces"]) == (2, 5)
    (row,) = ask("encoder:predict", {"instances": [{k: v[0] for k, v in IDS.items()}]})[
        1
    ].popitem()[1]
    outputs = ask("encoder:predict", {"inputs": IDS})[1]["outputs"]
    assert row == {name: values[0] for name, values in outputs.items()}


@pytest.mark.slow
def test_status(ask: Ask):
    code, body = ask("fill_mask")
    (version,) = body["model_version_status"]
    assert (code, version["version"], version["state"]) == (200, "1", "AVAILABLE")


@pytest.mark.slow
@pytest.mark.parametrize("path", ["encoder/metadata", "encoder/versions/1/metadata"])
def test_metadata(ask: Ask, path: str):
    code, body = ask(path)
    spec = {"name": "encoder", "signature_name": "", "version": "1"}
    assert (code, body["model_spec"]) == (200, spec)
    signature = body["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    assert signature["inputs"].keys() == IDS.keys()
    sizes = [{"size": "-1", "name": ""}, {"size": "-1", "name": ""}]
    assert signature["inputs"]["input_mask"] == {
        "dtype": "DT_INT32",
        "tensor_shape": {"dim": sizes, "unknown_rank": False},
        "name": "serving_default_input_mask:0",
    }
    pooled = signature["outputs"]["pooled_output"]
    assert (pooled["dtype"], pooled["tensor_shape"]["dim"][1]["size"]) == ("DT_FLOAT", "32")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_line", "code", "error"),
    [
        ("PUT /v1/models/encoder:predict HTTP/1.1", 501, "Unsupported method ('PUT')"),
        ("GET /v1/models/encoder HTTP/9", 400, "Bad request version ('HTTP/9')"),
        ("GET /v1/models/encoder HTTP/2.0", 505, "Invalid HTTP version (2.0)"),
        ("hello", 400, "Bad request syntax ('hello')"),
        ("a b c d", 400, "Bad request version ('d')"),
        (f"GET /{'a' * 70_000} HTTP/1.1", 414, "URI Too Long"),
        (f"GET / HTTP/1.1\r\nX: {'a' * 70_000}", 431, "Line too long"),
        ("GET / HTTP/1.1", 404, "unknown path '/'"),
    ],
)
def test_errors_are_json(server: Server, request_line: str, code: int, error: str):
    with socket.create_connection(("localhost", server.server_port), timeout=60) as client:
        client.sendall(f"{request_line}\r\nConnection: close\r\n\r\n".encode())
        answer = http.client.HTTPResponse(client)
        answer.begin()
        assert (answer.status, answer.headers["Content-Type"]) == (code, "application/json")
        assert error in json.loads(answer.read())["error"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body", "code", "error"),
    [
        ("fill_mask:predict", b"{", 400, "not JSON"),
        ("fill_mask:predict", [], 400, "must be a JSON object"),
        ("fill_mask:predict", {}, 400, "either `instances` or `inputs`"),
        ("fill_mask:predict", {"instances": []}, 400, "at least one instance"),
        ("fill_mask:predict", {"instances": [{"txt": "a"}]}, 400, "inputs are ['text']"),
        ("fill_mask:predict", {"instances": [1]}, 400, "`text` must be string"),
        ("fill_mask:predict", {"instances": [["a"]]}, 400, "nested at most 1 deep"),
        ("fill_mask:predict", {"inputs": "a"}, 400, "must have the shape"),
        ("fill_mask:predict", {"instances": [{"b64": "%"}]}, 400, "`text` must be string"),
        ("fill_mask:predict", {"signature_name": "x", "inputs": "a"}, 400, "serving_default"),
        ("encoder:predict", {"instances": [[1]]}, 400, "name each of them"),
        ("encoder:predict", {"inputs": IDS | {"input_mask": [[1.5] * 3]}}, 400, "must be int32"),
        ("encoder:predict", {"inputs": IDS | {"input_mask": [[1, 1]]}}, 400, "shape"),
        ("fill_mask:classify", {"examples": [{"text": "a"}]}, 400, "signatures are"),
        ("other:predict", {"inputs": "a"}, 404, "encoder/versions/1, fill_mask/versions/1"),
        ("fill_mask/versions/2:predict", {"inputs": "a"}, 404, "there are encoder/versions/1"),
        ("encoder:predict", {"inputs": IDS | {"input_word_ids": [[2, 2**40, 3]]}}, 400, "between"),
        ("encoder:predict", {"inputs": IDS | {"input_word_ids": [[2, -5, 3]]}}, 400, "= -5 is not"),
        ("fill_mask:predict", b"[" * 100_000, 400, "not JSON"),
        ("fill_mask:predict", {"signature_name": ["x"], "inputs": "a"}, 400, "signatures are"),
        (
            f"fill_mask/versions/{'9' * 5000}:predict",
            {"inputs": "a"},
            404,
            "there are encoder/versions/1",
        ),
        ("fill_mask:train", {"inputs": "a"}, 404, "unknown path '/v1/models/fill_mask:train'"),
        ("fill_mask/metadata/x", None, 404, "unknown path"),
        ("other/metadata", None, 404, "there are encoder/versions/1"),
        ("encoder/versions/2/metadata", None, 404, "there are encoder/versions/1"),
        ("encoder/metadata", {}, 400, "Malformed request: POST /v1/models/encoder/metadata"),
        ("fill_mask", {"inputs": "a"}, 400, "Malformed request: POST /v1/models/fill_mask"),
        ("fill_mask:predict", None, 400, "Malformed request: GET /v1/models/fill_mask:predict"),
    ],
)
def test_bad_requests(ask: Ask, path: str, body: object, code: int, error: str):
    answer = ask(path, body)
    assert answer[0] == code and error in answer[1]["error"], answer
    assert ask("fill_mask:predict", {"instances": ["[MASK]"]})[0] == 200


@pytest.mark.slow
@pytest.mark.parametrize("depth", [3, 255, 480, 900, 100_000])
@pytest.mark.parametrize("start", ['"instances": ', '"inputs": ', '"inputs": {"text": '])
def test_lists_nested_too_deep_are_refused(ask: Ask, start: str, depth: int):
    """TensorFlow would abort, with the whole server, and Python's recursion end."""
    body = "{" + start + "[" * depth + '"a"' + "]" * depth + "}" * start.count("{") + "}"
    code, answer = ask("fill_mask:predict", body.encode())
    error = "not JSON" if depth == 100_000 else "`text` must have lists nested at most 1 deep"
    assert code == 400 and error in answer["error"]
    assert ask("fill_mask:predict", {"instances": ["[MASK]"]})[0] == 200


@pytest.mark.parametrize(
    "body",
    [b'{"signature_name": %b}', b'{"examples": [{"text": [%b]}], "signature_name": "x"}'],
)
def test_a_reason_shortens_what_was_received(ask: Ask, body: bytes):
    code, answer = ask("fill_mask:classify", body % (b"[" * 900 + b"]" * 900))
    assert code == 400 and len(answer["error"]) < 200


def test_lists_are_as_deep_as_the_deepest():
    for value, depth in (("a", 0), ([], 1), (["a"], 1), (["a", [[]]], 3), ([{"b64": [[]]}], 1)):
        assert serve._is_deeper(value, depth - 1) == (depth > 0)
        assert not serve._is_deeper(value, depth)


@pytest.mark.parametrize("rank", [None, 2])
def test_the_depth_is_that_of_the_input(rank: int | None):
    shape = None if rank is None else [None] * rank
    spec, most = tf.TensorSpec(shape, tf.int32, "ids"), rank or 254
    value: list | int = 1
    for _ in range(most):
        value = [value]
    assert serve._tensor(spec, value).shape == [1] * most
    with pytest.raises(BadRequestError, match=f"at most {most} deep"):
        serve._tensor(spec, [value])


@pytest.mark.slow
@pytest.mark.parametrize("length", [str(8 * 2**20 + 1), str(2**40), "9" * 5000])
def test_a_request_that_is_too_large_is_not_read(ask: Ask, length: str):
    answer = ask("fill_mask:predict", b"{}", {"Content-Length": length})
    assert answer == (413, {"error": "a request must have at most 8388608 bytes"})


def test_connections_above_the_limit_are_closed(one_at_a_time: Server, monkeypatch):
    monkeypatch.setattr(serve, "MAX_CONNECTIONS", 1)
    first = post(one_at_a_time)
    assert one_at_a_time.models["echo"].was_asked.wait(60)
    with socket.create_connection(("localhost", one_at_a_time.server_port), 30) as second:
        assert second.recv(1) == b""  # well before its time is up
    one_at_a_time.models["echo"].may_answer.set()
    assert answer(first) == (200, {"a": 1})


@pytest.mark.parametrize("start", [b"", b"P", HEAD, HEAD + b"12"])
def test_a_request_must_arrive_in_time(one_at_a_time: Server, start: bytes):
    server, model = one_at_a_time, one_at_a_time.models["echo"]
    with socket.create_connection(("localhost", server.server_port), 30) as client:
        client.sendall(start)
        asked = post(server)  # connections are accepted in order
        assert model.was_asked.wait(60)
        server.service_actions(60.0)
        assert len(server.connections) == 2
        server.service_actions(0.0)
        data = b"".join(iter(lambda: client.recv(65536), b""))  # well before its time is up
        assert (b"did not arrive within 60 s" in data) == (start > b"P")
        model.may_answer.set()
        assert answer(asked) == (200, {"a": 1})  # it has arrived


@pytest.mark.slow
def test_a_refusal_reaches_a_client_that_is_still_sending(ask: Ask):
    assert ask("fill_mask:predict", b" " * (9 * 2**20))[0] == 413


@pytest.mark.parametrize("limit", ["MAX_IDS", "MAX_VALUES"])
def test_large_inputs_and_answers_are_refused(ask: Ask, monkeypatch, limit: str):
    outputs = ask("encoder:predict", {"inputs": IDS})[1]["outputs"]
    size = 3 if limit == "MAX_IDS" else sum(np.size(value) for value in outputs.values())
    for most, code in ((size, 200), (size - 1, 413)):
        monkeypatch.setattr(serve, limit, most)
        assert ask("encoder:predict", {"inputs": IDS})[0] == code


@pytest.fixture
def one_at_a_time() -> Iterator[Server]:
    """A server whose model answers one request at a time."""
    with Server(("localhost", 0), {"echo": Echo()}) as server:
        server.free = threading.BoundedSemaphore(1)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.models["echo"].may_answer.set()
        server.shutdown()
        thread.join()


class Echo:
    """A model that answers with the request, when it may."""

    version = 1

    def __init__(self) -> None:
        self.was_asked, self.may_answer = threading.Event(), threading.Event()

    def predict(self, request: dict) -> dict:
        self.was_asked.set()
        assert self.may_answer.wait(60)
        return request


def post(server: Server) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("localhost", server.server_port, timeout=60)
    connection.request("POST", "/v1/models/echo:predict", b'{"a": 1}')
    return connection


def answer(connection: http.client.HTTPConnection) -> tuple[int, dict]:
    with contextlib.closing(connection):
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def test_only_requests_for_the_models_are_counted(one_at_a_time: Server):
    server, model = one_at_a_time, one_at_a_time.models["echo"]
    with socket.create_connection(("localhost", server.server_port), 60) as idle:
        idle.sendall(HEAD)
        first = post(server)
        assert model.was_asked.wait(60)
        code, refusal = answer(post(server))
        assert code == 503 and "requests are waiting" in refusal["error"]
        state = http.client.HTTPConnection("localhost", server.server_port, timeout=60)
        state.request("GET", "/v1/models/echo")
        assert answer(state)[0] == 200
        model.may_answer.set()
        assert answer(first) == answer(post(server)) == (200, {"a": 1})


def test_a_server_that_stops_answers_what_has_arrived(one_at_a_time: Server):
    server, model = one_at_a_time, one_at_a_time.models["echo"]
    with socket.create_connection(("localhost", server.server_port), 60) as idle:
        asked = post(server)
        assert model.was_asked.wait(60)
        server.shutdown()
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        assert idle.recv(1) == b""  # well before its time is up
        assert stopping.is_alive()
        model.may_answer.set()
        assert answer(asked) == (200, {"a": 1})
        stopping.join()
        assert not server.connections


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_with_status_0(exports: pathlib.Path, stop: signal.Signals):
    command = [sys.executable, serve.__file__, "localhost:0", f"model={exports / 'fill_mask'}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline().startswith("serving ")
        process.send_signal(stop)
        assert process.wait(60) == 0


@pytest.mark.slow
def test_a_refused_client_cannot_send_for_ever(server: Server):
    with socket.create_connection(("localhost", server.server_port), 30) as client:
        client.sendall(b"POST /v1/models/fill_mask:predict HTTP/1.1\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 411 ")
        with pytest.raises(ConnectionError):
            while True:
                client.sendall(b" " * 65536)


@pytest.mark.slow
@pytest.mark.parametrize(
    "headers",
    [
        *((length,) for length in ("-1", "\u00b2", "1_0", "")),
        (),
        ("2", "2"),
        ("0\r\nTransfer-Encoding: chunked",),
    ],
)
def test_a_request_must_tell_its_length(server: Server, headers: tuple[str, ...]):
    lines = "".join(f"Content-Length: {length}\r\n" for length in headers)
    code, _, answer = raw(server, f"POST /v1/models/fill_mask:predict HTTP/1.1\r\n{lines}\r\n")
    error = "the body must have one Content-Length, a number of bytes"
    assert (code, json.loads(answer)) == (411, {"error": error})


@pytest.mark.slow
@pytest.mark.parametrize(("path", "code"), [("fill_mask", 200), ("other", 404)])
def test_head_is_get_without_the_body(server: Server, path: str, code: int):
    end = f" /v1/models/{path} HTTP/1.1\r\nConnection: close\r\n\r\n"
    got, headers, body = raw(server, "GET" + end)
    assert got == code and f"Content-Length: {len(body)}" in headers
    assert raw(server, "HEAD" + end) == (got, headers, b"")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_body_of_a_request_for_the_state_is_not_the_next_request(server: Server, method: str):
    connection = http.client.HTTPConnection("localhost", server.server_port, timeout=60)
    with contextlib.closing(connection):
        for name, code in (("fill_mask", 200), ("other", 404), ("fill_mask", 200)):
            connection.request(method, f"/v1/models/{name}", b"GET / HTTP/1.1\r\n\r\n")
            answer = connection.getresponse()
            answer.read()
            assert (answer.status, answer.will_close) == (code, False)
        connection.request(method, "/v1/models/fill_mask", iter([b"GET / HTTP/1.1\r\n\r\n"]))
        answer = connection.getresponse()  # to a request in chunks, which are not read
        assert (answer.status, answer.will_close) == (411, True)


def raw(server: Server, request: str) -> tuple[int, list[str], bytes]:
    """The status, the headers but the date, and the body of the answer to the bytes."""
    with socket.create_connection(("localhost", server.server_port), 60) as client:
        client.sendall(request.encode("latin-1"))
        data = b"".join(iter(lambda: client.recv(65536), b""))
    head, _, body = data.partition(b"\r\n\r\n")
    status, *headers = head.decode().split("\r\n")
    kept = [header for header in headers if not header.startswith("Date:")]
    return int(status.split()[1]), kept, body


@pytest.mark.parametrize("end", ["Content-Length: 37", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("line", ["Content-Length : 37", "X Y: 1", "X"])
def test_a_malformed_header_does_not_hide_a_body(server: Server, line: str, end: str):
    head = f"GET /v1/models/fill_mask HTTP/1.1\r\n{line}\r\n{end}\r\n\r\n"
    code, headers, body = raw(server, head + "GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert (code, json.loads(body)) == (400, {"error": "the headers are malformed"})
    assert "Connection: close" in headers


@pytest.mark.slow
def test_a_connection_serves_several_requests_until_it_is_told_to_close(server: Server):
    connection = http.client.HTTPConnection("localhost", server.server_port, timeout=60)
    predict, status = "/v1/models/fill_mask:predict", "/v1/models/fill_mask"
    for method, path, keep in [
        ("HEAD", status, "keep-alive"),
        ("POST", predict, "keep-alive"),
        ("GET", status, "keep-alive"),
        ("POST", predict, "close"),
    ]:
        body = b'{"inputs": ["a"]}' if method == "POST" else None
        connection.request(method, path, body, {"Connection": keep})
        answer = connection.getresponse()
        answer.read()
        assert (answer.status, answer.will_close) == (200, keep == "close")


@pytest.mark.slow
def test_a_client_that_sends_nothing_is_disconnected(server: Server, monkeypatch):
    """It would keep one of the places for requests."""
    monkeypatch.setattr(server.RequestHandlerClass, "timeout", 0.2)
    with socket.create_connection(("localhost", server.server_port), 30) as client:
        client.sendall(b"POST /v1/models/fill_mask:predict HTTP/1.1\r\nContent-Length: 9\r\n\r\n")
        assert client.recv(1) == b""


@pytest.mark.slow
def test_classification_takes_signatures_for_it(server: Server):
    model = server.models["fill_mask"]
    request = {"signature_name": "serving_default", "examples": [{"text": "a"}]}
    with pytest.raises(BadRequestError, match="must be a signature for classification"):
        model.classify(request)


@pytest.mark.slow
def test_text_that_is_not_unicode_is_refused(server: Server, ask: Ask, monkeypatch):
    with pytest.raises(BadRequestError, match="`text` is not Unicode"):
        serve._example({"text": "\ud800"})
    code, answer = ask("fill_mask:predict", {"instances": ["\ud800"]})
    assert code == 400 and answer["error"].startswith("`text` must be string: ")
    code, answer = ask("fill_mask:predict", {"instances": [{"\ud800": "x"}]})
    assert (code, answer["error"]) == (400, "the inputs are ['text']. Received: ['\\ud800']")
    monkeypatch.setattr(server.models["fill_mask"], "classify", classified)
    code, answer = ask("fill_mask:classify", {"examples": [{"\ud800": "x"}]})
    assert code == 400 and answer["error"].startswith("`\ud800` is not Unicode: ")


def classified(request: dict) -> dict:
    """The part of `classify` that reads examples: no export of these tests has the signature."""
    return {"results": [serve._example(each) for each in request["examples"]]}


@pytest.mark.slow
def test_an_error_of_the_server_is_answered(server: Server, ask: Ask, monkeypatch, capfd):
    def fail(request: dict) -> dict:
        raise KeyError("\ud800") if "inputs" in request else RecursionError

    monkeypatch.setattr(server.models["fill_mask"], "predict", fail)
    answer = ask("fill_mask:predict", {"inputs": "a"})
    assert answer == (500, {"error": "KeyError: '\\ud800'"})
    assert ask("fill_mask:predict", {"instances": ["a"]}) == (500, {"error": "RecursionError: "})
    assert capfd.readouterr().err.count("Traceback") == 2
    monkeypatch.setattr(server.models["fill_mask"], "predict", lambda request: {"outputs": 1j})
    code, answer = ask("fill_mask:predict", {})
    assert code == 500 and "complex" in answer["error"]


def test_bytes_in_base64_are_the_text(ask: Ask):
    plain = ask("fill_mask:predict", {"instances": ["[MASK]"]})
    assert ask("fill_mask:predict", {"instances": [{"b64": "W01BU0td"}]}) == plain


@pytest.mark.slow
def test_requests_at_the_same_time_get_their_own_answers(ask: Ask):
    alone = [ask("fill_mask:predict", {"instances": [text]}) for text in TEXTS]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(ask, "fill_mask:predict", {"instances": [text]}) for text in TEXTS * 8]
        assert [job.result() for job in jobs] == alone * 8


@pytest.fixture
def stopped(monkeypatch, capsys) -> Callable[..., str]:
    """(arguments) -> the one line with which `main` stops before it loads a model."""

    def stopped(*arguments: str, loads: bool = False) -> str:
        if not loads:
            monkeypatch.delattr(serve, "ServedModel")
        with pytest.raises(SystemExit) as stop:
            serve.main(arguments[0], list(arguments[1:]))
        (line,) = capsys.readouterr().err.splitlines()
        assert stop.value.code == 2 and line.startswith("serve.py: error: ")
        return line.removeprefix("serve.py: error: ")

    return stopped


@pytest.mark.parametrize("model", ["fill_mask", "fill_mask=", "=.", "a/b=.", "a:b=."])
def test_an_argument_that_is_not_name_and_folder_is_named(stopped: Callable, model: str):
    reason = f"{model!r} must be NAME=FOLDER, with a name without '/' and ':'"
    assert stopped("localhost:0", "good=.", model) == reason


def test_a_missing_folder_is_named(stopped: Callable, tmp_path):
    folder = str(tmp_path / "none")
    reason = f"'bad={folder}': there is no folder {folder!r}"
    assert stopped("localhost:0", "good=.", f"bad={folder}") == reason


@pytest.mark.parametrize("address", ["localhost", "8501", ":8501", "localhost:", "a:x", "a:65536"])
def test_an_address_must_have_a_host_and_a_port(stopped: Callable, address: str):
    reason = f"{address!r} must be HOST:PORT, with a port from 0 (any free one) to 65535"
    assert stopped(address, "good=.") == reason


@pytest.mark.slow
@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 70, "a..b"])
def test_an_unknown_host_is_named(stopped: Callable, host: str):
    assert stopped(f"{host}:0", "good=.").startswith(f"cannot listen on '{host}:0': ")


@pytest.mark.slow
def test_a_port_in_use_is_named(stopped: Callable, server: Server):
    address = f"localhost:{server.server_port}"
    error = stopped(address, "good=.")
    assert error.startswith(f"cannot listen on {address!r}: ") and "in use" in error


def test_a_folder_without_a_model_is_named(stopped: Callable, tmp_path):
    for make, reason in ((tmp_path, "has no version"), (tmp_path / "1", "does not exist")):
        make.mkdir(exist_ok=True)
        error = stopped("localhost:0", f"bad={tmp_path}", loads=True)
        assert error.startswith(f"'bad={tmp_path}': ") and reason in error


@pytest.mark.parametrize("arguments", [[], ["localhost:0"]])
def test_without_models_it_prints_how_to_use_it(monkeypatch, capsys, arguments: list[str]):
    monkeypatch.setattr("sys.argv", ["serve.py", *arguments])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(serve.__file__, run_name="__main__")
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("usage: python serve.py HOST:PORT NAME=FOLDER...")
