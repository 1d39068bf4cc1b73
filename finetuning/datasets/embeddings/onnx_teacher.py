"""Embedding of texts with an ONNX model, in the layout of sentence-transformers."""

import os
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from albert_tf.runtime import extras
from albert_tf.runtime.errors import InputError, InputNotFoundError, shortened
from albert_tf.runtime.files import outputs
from albert_tf.tasks.embedding.module_files import MODULES, max_length_in, modules_in, pooling_in

FILES = ("model.onnx", os.path.join("onnx", "model.onnx"))  # in a folder
_TOKENIZER = "tokenizer.json"
_OUTPUT = "sentence_embedding"  # of a graph that pools itself
_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
_KNOWN = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
# Name of a pooling -> function from hidden states [B, S, H] and a mask [B, S] to vectors [B, H].
_POOLINGS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cls": lambda hidden, mask: hidden[:, 0],
    "mean": lambda hidden, mask: (
        np.einsum("bsh,bs->bh", hidden, mask) / np.maximum(mask.sum(1, keepdims=True), 1)
    ),
}


class OnnxTeacher:
    """The vectors of texts by an ONNX model and the tokenizer.json beside it, or one folder above.

    The vectors are the graph's output `sentence_embedding`, or else its first one. If that has a
    vector for each piece, modules.json and the configuration of the pooling say how they are pooled
    and whether the result is normalized. Texts are truncated to the length of
    sentence_bert_config.json, or else of the tokenizer and the model.

    Args:
      path: the file, or a folder with model.onnx or onnx/model.onnx.
      threads: of ONNX Runtime; 0 for its default.

    Raises:
      InputNotFoundError: a file is missing.
      InputError: a package is missing, a file is damaged, or the model is of another form.
    """

    def __init__(self, path: str, threads: int = 0) -> None:
        self._path = onnx_file(path) or path
        folder = os.path.dirname(os.path.abspath(self._path))
        roots = [root for root in (folder, os.path.dirname(folder)) if _holds(root, _TOKENIZER)]
        if not roots:
            raise InputNotFoundError(
                f"--teacher={self._path} needs {_TOKENIZER} beside it, or in the folder above."
            )
        self._root = roots[0]
        self._tokenizer, self._pad = _tokenizer(self._root)
        self._pooling, self._normalizes = _modules(self._root)
        runtime = _package("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        try:
            self._session = runtime.InferenceSession(self._path, options)
        except Exception as error:  # its types are private
            raise self._damaged(error) from None
        names = [node.name for node in self._session.get_outputs()]
        self._output = _OUTPUT if _OUTPUT in names else names[0]
        self._inputs = {node.name: _TYPES.get(node.type) for node in self._session.get_inputs()}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of a batch of texts, [B, D].

        Raises:
          InputError: the model takes other inputs, cannot be run, or returns what is not pooled.
        """
        values = self._values(texts)
        if not (self._inputs.keys() <= values.keys() and all(self._inputs.values())):
            raise InputError(
                f"--teacher={self._path} must take whole numbers as {', '.join(values)}. Received: "
                f"{', '.join(self._inputs)}. Export it as sentence-transformers does."
            )
        feed: dict[str, np.ndarray] = {
            name: values[name].astype(kind) for name, kind in self._inputs.items()
        }
        try:
            (vectors,) = self._session.run([self._output], feed)
        except Exception as error:  # its types are private
            raise self._damaged(error) from None
        if np.ndim(vectors) == 3:
            if self._pooling is None:
                raise InputError(
                    f"--teacher={self._path} returns a vector for each piece, so {MODULES} and "
                    f"1_Pooling/config.json must be in {self._root!r}. Copy them from the model."
                )
            vectors = _POOLINGS[self._pooling](
                vectors, values["attention_mask"].astype(vectors.dtype)
            )
        if self._normalizes:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
        return vectors

    def _values(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Return what the graph may take, each [B, S]."""
        rows = self._tokenizer.encode_batch(list(texts))
        shape = (len(rows), max(1, *(len(row.ids) for row in rows)))
        ids: np.ndarray = np.full(shape, self._pad)
        mask: np.ndarray = np.zeros(shape, int)
        types: np.ndarray = np.zeros(shape, int)
        for i, row in enumerate(rows):
            count = len(row.ids)
            ids[i, :count], mask[i, :count], types[i, :count] = row.ids, 1, row.type_ids
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}

    def _damaged(self, error: Exception) -> InputError:
        return InputError(
            f"--teacher={self._path} must be a model that ONNX Runtime can run: "
            f"{' '.join(str(error).split())[:200]}. Copy or export it again."
        )


def onnx_file(path: str) -> str | None:
    """Return the ONNX model that a path is or that the folder there has; None without one."""
    files = (path, *(os.path.join(path, file) for file in FILES))
    return next(filter(os.path.isfile, files), None)


def _package(name: str) -> ModuleType:
    return extras.load(name, "teacher", "--teacher: an ONNX model")


def _holds(folder: str, name: str) -> bool:
    return os.path.isfile(os.path.join(folder, name))


def _tokenizer(root: str) -> tuple[Any, int]:
    """Return the tokenizer, which truncates but does not pad, and the id for padding."""
    path, package = os.path.join(root, _TOKENIZER), _package("tokenizers")
    try:
        tokenizer = package.Tokenizer.from_file(path)
    except Exception as error:  # the only type that it raises
        raise InputError(
            f"{path!r} must be a tokenizer of the package tokenizers: {error}. Copy it again."
        ) from None
    pad = (tokenizer.padding or {}).get("pad_id", 0)
    tokenizer.no_padding()
    if length := max_length_in(root):
        tokenizer.enable_truncation(length)
    return tokenizer, pad


def _modules(root: str) -> tuple[str | None, bool]:
    """Return the name of the pooling, and whether vectors are normalized; None without the file."""
    if not _holds(root, MODULES):
        return None, False
    modules = modules_in(root)
    names = [name for name, _ in modules]
    if names not in _KNOWN:
        raise InputError(
            f"{os.path.join(root, MODULES)!r} must list Transformer, Pooling and perhaps "
            f"Normalize. Received: {shortened(names)}. Remove the ONNX file to run the folder with "
            "sentence-transformers."
        )
    path = os.path.join(root, modules[1][1], "config.json")
    values = outputs.read_json(path)
    pooling = pooling_in(values)
    if pooling not in _POOLINGS or values.get("include_prompt") is False:
        raise InputError(
            f"{path!r} must pool by {' or '.join(_POOLINGS)}, prompts included. Received: "
            f"{shortened(values)}. Remove the ONNX file to run the folder with "
            "sentence-transformers."
        )
    return pooling, len(names) > 2
