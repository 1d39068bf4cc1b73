"""The page and the JSON of a server: escaped, refused, and for this computer alone."""

import contextlib
import http.client
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from finetuning.searching.search_index import SearchIndex
from finetuning.searching.searcher import METHODS, Searcher
from finetuning.searching.web_server import LONGEST_QUERY, SearchServer
from tests.finetuning.searching.conftest import LetterModel, build

ATTACK = "<script>alert('storms')</script>\"'&"


@pytest.fixture
def port(notes) -> Iterator[int]:
    """The port of a server of the notes, one of which is an attack."""
    (notes / "notes" / "x<img>.txt").write_text(f"Before the {ATTACK} after.\x1b[0m")
    build()
    searcher = Searcher(
        SearchIndex("index"),
        LetterModel().query,
        note=lambda query: "Ask with <fewer> words." if len(query) > 1000 else "",
    )
    with SearchServer(0, searcher, "both", 3) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def get(port: int, path: str, **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read().decode(), response.headers


def test_the_page_escapes_queries_and_passages(port):
    status, page, headers = get(port, f"/?q={quote(ATTACK)}&by=words")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    assert "<script" not in page.lower() and "<img" not in page and "\x1b" not in page
    assert "&lt;<mark>script</mark>&gt;" in page and "x&lt;img&gt;.txt:1" in page
    assert 'value="&lt;script&gt;alert(&#x27;storms&#x27;)&lt;/script&gt;&quot;&#x27;&amp;"' in page
    assert "<mark>storms</mark>" in page and "\ufffd[0m" in page
    assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_queries_as_browsers_and_as_curl_send_them(port):
    """Bytes that are not escaped are UTF-8 too."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        address = "/search?by=words&q=caf\u00e9".encode()
        connection.sendall(b"GET " + address + b" HTTP/1.0\r\nHost: localhost\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["query"] == "caf\u00e9"


def test_a_malformed_address_is_refused(port, capfd):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(b"GET http://[ HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")
    assert "Traceback" not in capfd.readouterr().err


def test_a_client_that_does_not_wait_leaves_no_traceback(notes, capfd):
    is_gone, ended = threading.Event(), threading.Event()

    class Slow(Searcher):
        def results(self, *arguments):
            is_gone.wait(20)
            return []

    class Server(SearchServer):
        def shutdown_request(self, request):
            super().shutdown_request(request)
            ended.set()

    build()
    reset = struct.pack("ii", 1, 0)  # closing discards what the server sends
    with Server(0, Slow(SearchIndex("index"), None), "words", 3, ("words",)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        with socket.create_connection(("127.0.0.1", server.server_port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            connection.sendall(b"GET /search?q=a HTTP/1.1\r\nHost: localhost\r\n\r\n")
            time.sleep(0.1)
        is_gone.set()
        assert ended.wait(20)
        ended.clear()
        with socket.create_connection(("127.0.0.1", server.server_port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            connection.sendall(b"GET /search?q=a HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(65536)  # gone while the next request is waited for
        assert ended.wait(20)
        server.shutdown()
        thread.join()
    assert "Traceback" not in capfd.readouterr().err


def test_a_note_on_a_long_query(port):
    for size, by, note in (
        (1001, "both", "Ask with <fewer> words."),
        (1001, "words", ""),
        (9, "both", ""),
    ):
        path = f"q={'x' * size}&by={by}"
        _, body, _ = get(port, f"/search?{path}")
        assert json.loads(body)["note"] == note
        _, page, _ = get(port, f"/?{path}")
        assert ('<p class="about error">Ask with &lt;fewer&gt; words.</p>' in page) == bool(note)


def test_the_empty_page(port):
    for path in ("/", "/?q=", "/?q=%20"):
        status, page, _ = get(port, path)
        assert status == 200 and "9 passages of index" in page and "<li>" not in page
    assert "http" not in page.replace("http-equiv", "")  # no external resources


def test_json_has_what_the_searcher_finds(port):
    status, body, headers = get(port, "/search?q=Ships%20on%20the%20sea")
    assert status == 200 and headers["Content-Type"] == "application/json"
    answer = json.loads(body)
    assert (answer["query"], answer["by"]) == ("Ships on the sea", "both")
    searcher = Searcher(SearchIndex("index"), LetterModel().query)
    wanted = [each.as_json() for each in searcher.results("Ships on the sea", 3)]
    assert answer["results"] == json.loads(json.dumps(wanted))
    first = answer["results"][0]
    assert first["source"] == "notes/c/sea.txt" and first["line"] == 1 and first["rank"] == 1
    marked = [first["text"][begin:end] for begin, end in first["marks"]]
    assert marked == ["Ships", "on", "the", "sea"]


@pytest.mark.parametrize("by", METHODS)
def test_fields_of_a_request(port, by):
    answer = json.loads(get(port, f"/search?q=tea&by={by}&top_k=1")[1])
    assert answer["by"] == by and len(answer["results"]) == 1
    assert answer["results"][0]["source"] == "notes/d/tea.txt"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/search?q=", "The query must have text"),
        ("/search", "The query must have text"),
        ("/search?query=a", "`query` is not a parameter. Pass only q, by, top_k."),
        ("/search?w=a&k=3", "`w` is not a parameter"),
        ("/search?q=a&by=magic", "by must be one of both, vectors, words"),
        ("/search?q=a&top_k=0", "top_k must be from 1 to 100"),
        ("/search?q=a&top_k=" + "9" * 5000, "top_k must be from 1 to 100"),
        ("/search?q=a&top_k=%C2%B2", "top_k must be"),
        ("/search?q=a&top_k=0000000001999", "top_k must be"),
        (f"/search?q={'a' * (LONGEST_QUERY + 1)}", "q must have at most 2,000 characters"),
    ],
)
def test_refused_requests(port, path, reason):
    status, body, _ = get(port, path)
    assert status == 400 and reason in json.loads(body)["error"]
    if "?q=a" in path:
        status, page, _ = get(port, path.replace("/search", "/"))
        assert status == 400 and reason in page


@pytest.mark.parametrize("header", [("Content-Length", "2"), ("Transfer-Encoding", "chunked")])
@pytest.mark.parametrize(("path", "code"), [("/search?q=tea", 200), ("/other", 404)])
def test_the_body_of_a_request_is_not_the_next_request(port, path, code, header):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=dict([header]))
        response = connection.getresponse()
        assert (response.status, response.will_close) == (code, True)


@pytest.mark.parametrize("line", ["Content-Length : 37", "X Y: 1\r\nContent-Length: 37"])
def test_a_malformed_header_does_not_hide_a_body(port, line):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        head = f"GET /search?q=tea HTTP/1.1\r\nHost: localhost\r\n{line}\r\n\r\n"
        connection.sendall(head.encode() + b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        answers = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answers.startswith(b"HTTP/1.1 200 ") and answers.count(b"HTTP/1.1 ") == 1


def test_other_paths_and_hosts(port):
    assert get(port, "/../etc/passwd")[0] == get(port, "/favicon.ico")[0] == 404
    assert get(port, "/search?q=tea", Host="evil.example:80")[0] == 404
    assert get(port, "/search?q=tea", Host=f"localhost:{port}")[0] == 200
    assert get(port, "/search?q=tea", Host="localhost")[0] == 200
