"""The two ways in which `benchmarks.load` asks an export: the C API, and REST over sockets."""

import contextlib
import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.runtime.errors import InputError, InputNotFoundError
from examples.c_api import Session

_TIMEOUT_S = 60.0
_PATH = "/v1/models/model:predict"
_SERVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples", "serve.py")
_IDS = {"input_word_ids": [[2, 7, 3]], "input_mask": [[1, 1, 1]], "input_type_ids": [[0, 0, 0]]}
_SHAPES = _IDS | {"input_mask": [[1, 1]]}
_UNKNOWN_ID = _IDS | {"input_word_ids": [[2, 10**8, 3]]}
_NEGATIVE_ID = _IDS | {"input_word_ids": [[2, -5, 3]]}
_TOO_LONG = {name: [[1] * 10_000] for name in _IDS}
_NO_PIECES: dict[str, Any] = {name: [[]] for name in _IDS}


def check_signatures(signatures: Mapping[str, tuple[Mapping, Mapping]], export: str) -> None:
    """Check that an export answers single texts.

    Args:
      signatures: name -> (inputs, outputs), each by name.
      export: its folder, for the message.

    Raises:
      InputError: it is not a classifier, with one label or several, or regressor of single texts.
    """
    inputs, outputs = (set(side) for side in signatures["serving_default"])
    classifies = "classify" in signatures and "probabilities" in outputs
    if inputs != {"text"} or not (classifies or outputs == {"score"}):
        raise InputError(
            f"--export={export} must be a classifier or regressor of single texts, whose inputs "
            "are text and whose outputs include probabilities or are score. Its inputs are "
            f"{', '.join(sorted(inputs))} and its outputs {', '.join(sorted(outputs))}."
        )


def newest_export(export: str, files: Sequence[str] = ("saved_model.pb",)) -> str:
    """Return the folder EXPORT/VERSION with the largest number.

    Raises:
      InputNotFoundError: there is none, or it has none of `files`.
    """
    names = os.listdir(export) if os.path.isdir(export) else []
    version = max((name for name in names if name.isdigit()), key=int, default="")
    folder = os.path.join(export, version)
    if not version or not any(os.path.isfile(os.path.join(folder, file)) for file in files):
        raise InputNotFoundError(
            f"--export={export} must be a folder whose newest version has {' or '.join(files)}, "
            f"such as {export}/1/{files[0]}, as albert_tf.export writes it."
        )
    return folder


class CApi(contextlib.AbstractContextManager):
    """The SavedModel in `folder` in a session of the C API; see `load.Target`.

    Attributes:
      signatures: those of examples/c_api.py's `Session`.
    """

    # Signature, inputs, and a part of TensorFlow's message.
    _MALFORMED: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("classify", {"inputs": ["no tf.Example"]}, "Could not parse example"),
        ("tokens", _SHAPES, "must have one shape"),
        ("tokens", _UNKNOWN_ID, "is not in [0, "),
        ("tokens", _NEGATIVE_ID, "is not in [0, "),
        ("tokens", _TOO_LONG, "must have 1 to"),
        ("tokens", _NO_PIECES, "must have 1 to"),
    )

    def __init__(self, folder: str) -> None:
        self._session, self.pid = Session(folder), os.getpid()
        self.signatures = self._session.signatures
        self._malformed = [case for case in self._MALFORMED if case[0] in self.signatures]
        self.num_malformed = len(self._malformed)

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def ask(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the probabilities or the score of each text."""
        outputs = self._session.run({"text": list(texts)})
        if "probabilities" in outputs:
            return outputs["probabilities"]
        return [[score] for score in outputs["score"]]

    def refuses(self, number: int) -> bool:
        """Run malformed inputs and return True if TensorFlow gives the reason."""
        signature, inputs, reason = self._malformed[number]
        try:
            self._session.run(inputs, signature)
        except RuntimeError as error:
            return reason in str(error)
        return False


def _tokens(ids: dict[str, Any]) -> dict[str, Any]:
    return {"signature_name": "tokens", "inputs": ids}


class Rest(contextlib.AbstractContextManager):
    """examples/serve.py in a process of its own; see `load.Target`.

    Args:
      export: the folder to serve.
      classifies: whether the export has the signature `classify`.

    Raises:
      ChildProcessError: the server ended.
    """

    _MALFORMED: tuple[tuple[Any, int], ...] = (
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[" * 100_000, 400),
        (b'{"instances": ["\\ud800"]}', 400),
        ([], 400),
        ({}, 400),
        ({"instances": []}, 400),
        ({"instances": [None]}, 400),
        ({"instances": [["a"]]}, 400),
        ({"instances": [{"txt": "a"}]}, 400),
        ({"instances": [{"b64": "%"}]}, 400),
        ({"inputs": "a", "instances": ["a"]}, 400),
        ({"inputs": {"text": 1.5}}, 400),
        ({"inputs": ["a"], "signature_name": "none"}, 400),
        ({"inputs": ["a"], "signature_name": ["serving_default"]}, 400),
        *(
            (_tokens(ids), 400)
            for ids in (_SHAPES, _UNKNOWN_ID, _NEGATIVE_ID, _TOO_LONG, _NO_PIECES, {})
        ),
        (_tokens(_IDS | {"input_word_ids": [[2, 2**40, 3]]}), 400),
    )
    _NO_EXAMPLE = ({"inputs": ["no tf.Example"], "signature_name": "classify"}, 400)

    def __init__(self, export: str, classifies: bool) -> None:
        self._malformed = [*self._MALFORMED, *([self._NO_EXAMPLE] if classifies else [])]
        self.num_malformed = len(self._malformed)
        self._process = subprocess.Popen(
            [sys.executable, _SERVER, "localhost:0", f"model={export}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        line = self._process.stdout.readline()  # serving model on http://localhost:PORT
        if not line:
            raise ChildProcessError(f"The server ended with status {self._process.wait()}.")
        self._port = int(line.rpartition(":")[2])
        self._local = threading.local()  # each thread has a connection, which it keeps busy

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()

    def ask(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the probabilities or the score of each text."""
        code, body = self._post(_encoded({"instances": list(texts)}))
        if code != 200:
            raise RuntimeError(f"The server answered {code}: {body}")
        return _rows(body)

    def refuses(self, number: int) -> bool:
        """Send a malformed request and return True if it gets the right code and a reason."""
        request, wanted = self._malformed[number]
        code, body = self._post(request if isinstance(request, bytes) else _encoded(request))
        return code == wanted and bool(body.get("error"))

    def _post(self, body: bytes) -> tuple[int, Any]:
        if not hasattr(self._local, "connection"):
            self._local.connection = http.client.HTTPConnection(
                "localhost", self._port, timeout=_TIMEOUT_S
            )
        self._local.connection.request("POST", _PATH, body)
        answer = self._local.connection.getresponse()
        return answer.status, json.loads(answer.read())


def _encoded(request: Any) -> bytes:
    return json.dumps(request).encode()


def _rows(body: dict[str, Any]) -> list[list[float]]:
    """Return the probabilities of a classifier's predictions, the scores of a regressor's."""
    return [row["probabilities"] if isinstance(row, dict) else [row] for row in body["predictions"]]
