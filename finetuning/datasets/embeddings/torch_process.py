"""Embedding of texts with sentence-transformers, in a process of its own.

TensorFlow and triton, which torch imports, crash if one process loads both.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from albert_tf.runtime.errors import InputError, MachineError
from albert_tf.runtime.files.json_text import parse_json
from albert_tf.runtime.files.text_files import text_of
from albert_tf.tasks.embedding.module_files import MODULES

_PACKAGE = "sentence_transformers"
# The program of the process: the answer to a line with a list of texts is a line with the shape of
# the vectors, and their bytes as float32.
_PROGRAM = """
import json, sys
answers, sys.stdout = sys.stdout.buffer, sys.stderr
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1])
for line in sys.stdin:
    vectors = model.encode(
        json.loads(line), batch_size=int(sys.argv[2]), show_progress_bar=False,
        convert_to_numpy=True,
    ).astype("<f4")
    answers.write(json.dumps(vectors.shape).encode() + b"\\n" + vectors.tobytes())
    answers.flush()
"""


class TorchProcess:
    """A process that holds a model of sentence-transformers.

    Args:
      path: the model's folder.
      batch_size: the number of texts that it computes together.

    Raises:
      InputError: the model has modules of its own, whose code the package would run; the package
        is missing, or the model cannot be loaded.
      MachineError: at a call, the process has ended.
    """

    def __init__(self, path: str, batch_size: int) -> None:
        _require_modules_of_the_package(path)
        if importlib.util.find_spec(_PACKAGE) is None:
            raise InputError(
                f"--teacher={path} is a folder of sentence-transformers, which needs this package. "
                "Run pip install sentence-transformers."
            )
        self._path = path
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, path, str(batch_size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            self(["a text"])
        except MachineError as error:
            raise InputError(str(error)) from None

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of texts, float32 [N, D]."""
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None and answers is not None
        try:
            questions.write(json.dumps(list(texts)).encode() + b"\n")
            questions.flush()
        except BrokenPipeError:
            self._fail()
        header = answers.readline()
        if not header:
            self._fail()
        shape = json.loads(header)
        return np.frombuffer(answers.read(4 * int(np.prod(shape))), "<f4").reshape(shape)

    def _fail(self) -> NoReturn:
        raise MachineError(
            f"--teacher={self._path}: the process of sentence-transformers ended with exit status "
            f"{self._process.wait()}; its message, if any, is above."
        )


def _require_modules_of_the_package(path: str) -> None:
    file = os.path.join(path, MODULES)
    modules = parse_json(text_of(file), file)
    for module in modules if isinstance(modules, list) else [modules]:
        kind = module.get("type") if isinstance(module, dict) else module
        if not str(kind).startswith(f"{_PACKAGE}."):
            raise InputError(
                f"--teacher={path}: each `type` in {MODULES} must begin with {_PACKAGE!r} and a "
                f"dot. Received: {kind!r}, whose code would come from the folder. Pass another "
                "model, or add its ONNX file."
            )
