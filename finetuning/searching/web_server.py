"""A web page for searches on this computer, and the same answers as JSON.

`/?q=...` is the page, which needs no script, and `/search?q=...` returns {"query", "by",
"results", "note"}; the note is empty unless a part of the query does not count. Both take `by`
(both, vectors or words) and `top_k`; `/search` refuses other parameters. In JSON, a `line` that is
unknown is null. A refused request has the status 400 and, in JSON, {"error": reason}.
"""

import html
import http.server
import json
import os
import re
import string
import sys
import threading
import traceback
import urllib.parse
from typing import Any, NamedTuple

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.report_text import counted
from finetuning.searching.searcher import METHODS, Result, Searcher

HOST = "127.0.0.1"
MOST_RESULTS = 100
LONGEST_QUERY = 2000  # characters
TIMEOUT_S = 60.0  # of a connection that sends nothing
_FIELDS = ("q", "by", "top_k")
_OWN_NAMES = ("localhost", HOST)
_PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page.html")
_LABELS = dict(zip(METHODS, ("words and meaning", "meaning", "words"), strict=True))
_SECURITY = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Question(NamedTuple):
    """The question of a request."""

    query: str
    by: str
    top_k: int


class SearchServer(http.server.ThreadingHTTPServer):
    """A server of one index, which only this computer can reach.

    Args:
      port: the port; 0 for any free one, which is then `server_port`.
      searcher: the searcher.
      by: how to search unless a request has `by`.
      top_k: the number of results unless a request has `top_k`.
      methods: the values of `by` that the searcher can answer.
    """

    daemon_threads = True

    def __init__(
        self,
        port: int,
        searcher: Searcher,
        by: str,
        top_k: int,
        methods: tuple[str, ...] = METHODS,
    ) -> None:
        super().__init__((HOST, port), _Handler)
        self.searcher, self.by, self.top_k, self.methods = searcher, by, top_k, methods
        self.turn = threading.Lock()  # one search already takes all cores
        with open(_PAGE, encoding="utf-8") as file:
            self.page = string.Template(file.read())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback, unless the client has gone."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def question(self, fields: dict[str, list[str]]) -> Question:
        """Return the question in the fields of a request.

        Raises:
          InputError: a field is invalid.
        """
        query = fields.get("q", [""])[-1]
        if len(query) > LONGEST_QUERY:
            raise InputError(
                f"q must have at most {LONGEST_QUERY:,} characters. Received: {len(query):,}. "
                "Shorten it."
            )
        by = fields.get("by", [self.by])[-1]
        if by not in self.methods:
            raise InputError(f"by must be one of {', '.join(self.methods)}. Received: {by!r}.")
        top_k = fields.get("top_k", [str(self.top_k)])[-1]
        if not (re.fullmatch("[0-9]{1,3}", top_k) and 1 <= int(top_k) <= MOST_RESULTS):
            raise InputError(f"top_k must be from 1 to {MOST_RESULTS}. Received: {top_k!r}.")
        return Question(query, by, int(top_k))

    def results(self, question: Question) -> list[Result]:
        """Return the results of a question, one search after the other."""
        with self.turn:
            return self.searcher.results(question.query, question.top_k, question.by)

    def rendered(self, question: Question, answer: str) -> bytes:
        """Return the page with HTML as the answer."""
        options = "".join(
            f'<option value="{name}"{" selected" * (name == question.by)}>{_LABELS[name]}</option>'
            for name in self.methods
        )
        return self.page.substitute(
            title=html.escape(f"{question.query} - search" if question.query else "search"),
            query=html.escape(question.query),
            longest=LONGEST_QUERY,
            methods=options,
            answer=answer,
        ).encode("utf-8", "replace")


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = TIMEOUT_S
    disable_nagle_algorithm = True  # or the body would wait 40 ms for an answer to the headers
    server: SearchServer

    def do_GET(self) -> None:
        lengths = self.headers.get_all("Content-Length", ["0"])
        if lengths != ["0"] or "Transfer-Encoding" in self.headers or self.headers.defects:
            self.close_connection = True  # the body is not read, and would be the next request
        try:
            url = urllib.parse.urlsplit(self.path.encode("latin-1").decode("utf-8", "replace"))
        except ValueError:  # such as http://[
            return self._send(400, "text/plain", b"The address is malformed.\n")
        respond = {"/": self._page, "/search": self._json}.get(url.path)
        name = self.headers.get("Host", HOST).rpartition(":")[0] or self.headers.get("Host", HOST)
        if respond is None or name not in _OWN_NAMES:
            # Another name is that of a page elsewhere, which may have it point to this computer.
            return self._send(404, "text/plain", b"There is no such page.\n")
        try:
            respond(urllib.parse.parse_qs(url.query, keep_blank_values=True))
        except (ConnectionError, TimeoutError):
            raise  # nobody waits for an answer
        except Exception:
            traceback.print_exc()
            self._send(500, "text/plain", b"The search failed; the terminal shows why.\n")

    def _page(self, fields: dict[str, list[str]]) -> None:
        server, code = self.server, 200
        question = Question("", server.by, server.top_k)
        try:
            question = server.question(fields)
            answer = ""
            if question.query.strip():
                note = server.searcher.note(question.query, question.by)
                answer = f'<p class="about error">{html.escape(note)}</p>' if note else ""
                answer += _as_html(server.results(question))
        except InputError as error:
            code, answer = 400, f'<p class="about error">{html.escape(str(error))}</p>'
        about = (
            f"{counted(len(server.searcher.index), 'passage')} of "
            f"{html.escape(server.searcher.index.path)}"
        )
        answer = answer or f'<p class="about">{about}</p>'
        self._send(code, "text/html; charset=utf-8", server.rendered(question, answer))

    def _json(self, fields: dict[str, list[str]]) -> None:
        try:
            if unknown := [name for name in fields if name not in _FIELDS]:
                raise InputError(
                    f"`{unknown[0][:80]}` is not a parameter. Pass only {', '.join(_FIELDS)}."
                )
            question = self.server.question(fields)
            results = [result.as_json() for result in self.server.results(question)]
            note = self.server.searcher.note(question.query, question.by)
            body = {"query": question.query, "by": question.by, "results": results, "note": note}
            code = 200
        except InputError as error:
            code, body = 400, {"error": str(error)}
        self._send(code, "application/json", json.dumps(body).encode())

    def _send(self, code: int, kind: str, data: bytes) -> None:
        self.send_response(code)
        if self.close_connection:
            self.send_header("Connection", "close")
        headers: dict[str, Any] = {"Content-Type": kind, "Content-Length": len(data), **_SECURITY}
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


def _as_html(results: list[Result]) -> str:
    """Return the results as a list in HTML, in which all text is escaped."""
    if not results:
        return '<p class="about">No passage has any of these very words.</p>'
    items = (
        f'<li><span class="score" title="score">{result.score:.4f}</span>'
        f'<span class="place">{html.escape(result.place)}</span>'
        f'<p dir="auto">{_marked(result)}</p></li>'
        for result in results
    )
    about = f"{counted(len(results), 'passage')}, the best first"
    return f'<p class="about">{about}</p><ol>{"".join(items)}</ol>'


def _marked(result: Result) -> str:
    parts, end = [], 0
    for begin, stop in result.marks:
        parts.append(html.escape(result.text[end:begin]))
        parts.append(f"<mark>{html.escape(result.text[begin:stop])}</mark>")
        end = stop
    return "".join([*parts, html.escape(result.text[end:])])
