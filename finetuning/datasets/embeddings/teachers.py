"""Models whose vectors others learn: of this project, SavedModels, ONNX, sentence-transformers."""

import functools
import glob
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import albert_tf
from albert_tf.models.checkpoints import is_saved_model
from albert_tf.models.config import EXTRAS
from albert_tf.runtime import pretrained
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.tasks.embedding.module_files import MODULES
from albert_tf.tasks.text_functions import in_batches, load_export
from finetuning.datasets.embeddings import onnx_teacher
from finetuning.datasets.embeddings.torch_process import TorchProcess

Teacher = Callable[[Sequence[str]], np.ndarray]  # texts -> vectors [N, D]
_BATCH = 32  # texts that a model of others reads together, of whatever length


class SearchTeacher(NamedTuple):
    """A model of vectors, whose prompts for queries and passages may differ."""

    queries: Teacher
    passages: Teacher


def load_teacher(path: str, batch_size: int | None, prompt: str = "") -> Teacher:
    """Load a model that returns a vector for each text, with `prompt` before it.

    Args:
      path: what `albert_tf.load_embedder` takes; another SavedModel, with a signature that takes
        strings and returns one matrix of floats; an ONNX model, see `OnnxTeacher`; or a folder of
        sentence-transformers.
      batch_size: the number of texts in a batch. None: the embedder's default, 32 for others.
      prompt: what to put before each text.

    Raises:
      InputNotFoundError: there is no model at `path`.
      InputError: it is damaged or of another form, or a package is missing.
    """
    path = pretrained.locate(path)
    teacher = _of_others(path, batch_size or _BATCH)
    if teacher is None:
        embedder = _of_this_project(path)
        given = {} if batch_size is None else {"batch_size": batch_size}
        teacher = functools.partial(embedder, **given, show_progress_bar=False)
    return lambda texts: teacher([prompt + text for text in texts])


def load_search_teacher(path: str, batch_size: int) -> SearchTeacher:
    """Load a model that returns vectors of queries and passages; see `load_teacher`.

    A model of this project has the prompts of its settings, any other none.
    """
    path = pretrained.locate(path)
    if other := _of_others(path, batch_size):
        return SearchTeacher(other, other)
    embedder = _of_this_project(path)
    options = {"batch_size": batch_size, "show_progress_bar": False}
    return SearchTeacher(
        functools.partial(embedder.encode_query, **options),
        functools.partial(embedder.encode_document, **options),
    )


def teacher_fingerprint(path: str) -> str:
    """Return 16 hex digits that change with the names and contents of a model's files.

    They are all of its folder or, of an ONNX file, those that begin with its name, and the JSON
    files of its folder and of the one above, where its tokenizer may be.
    """
    path, digest = os.path.abspath(pretrained.locate(path)), hashlib.sha256()
    if os.path.isdir(path):
        folder, patterns = path, ["**/*"]
    else:
        folder, name = os.path.split(path)
        patterns = [f"{glob.escape(name)}*", "*.json", "../*.json", "*/config.json"]
    found = {
        os.path.join(folder, name)
        for pattern in patterns
        for name in glob.glob(pattern, root_dir=folder, recursive=True)
    }
    for path in sorted(filter(os.path.isfile, found)):
        with open(path, "rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{os.path.relpath(path, folder)}\0{content}\0".encode())
    return digest.hexdigest()[:16]


def _of_this_project(path: str) -> Any:
    try:
        return albert_tf.load_embedder(path)
    except InputNotFoundError as error:
        raise InputNotFoundError(
            f"--teacher={path} must be a run, an export, the name of an included model, another "
            "SavedModel, an ONNX model or a folder of sentence-transformers. Received: "
            f"{str(error).rstrip('.')}. Pass one of these."
        ) from None


def _of_others(path: str, batch_size: int) -> Teacher | None:
    """Return a model that is not of this project, None if it is."""
    files = (path, *(os.path.join(path, name) for name in onnx_teacher.FILES))
    embed: Teacher
    if any(file.endswith(".onnx") and os.path.isfile(file) for file in files):
        embed = onnx_teacher.OnnxTeacher(path)
    elif is_saved_model(path) and not os.path.isdir(os.path.join(path, EXTRAS)):
        embed = _of_saved_model(path)
    elif os.path.isfile(os.path.join(path, MODULES)):
        return TorchProcess(path, batch_size)
    else:
        return None

    def vectors(texts: Sequence[str]) -> np.ndarray:
        embeddings = np.asarray(embed(texts))
        is_matrix = embeddings.ndim == 2 and embeddings.dtype.kind == "f"
        if not is_matrix or len(embeddings) != len(texts):
            raise InputError(
                f"--teacher={path} must return a vector of floats for each text. Received: "
                f"{embeddings.dtype} {list(embeddings.shape)} for {len(texts)} texts. Pass another "
                "model."
            )
        return embeddings

    return lambda texts: in_batches(vectors, texts, batch_size)


def _of_saved_model(path: str) -> Teacher:
    """Return the signature `serving_default`, or the only other one that fits."""
    loaded = load_export(path)
    signatures: Mapping[str, Any] = loaded.signatures
    fitting = [name for name in signatures if _maps_texts_to_vectors(signatures[name])]
    chosen = [name for name in fitting if name == "serving_default"] or fitting
    if len(chosen) != 1:
        raise InputError(
            f"--teacher={path} must have the signature serving_default, or only one other, that "
            "takes a batch of strings and returns one matrix of floats. Received: "
            f"{', '.join(chosen or signatures) or 'no signatures'}"
            f"{'' if chosen else ', with other inputs or outputs'}. Save it with one."
        )
    (signature,) = (signatures[name] for name in chosen)
    (given,), (returned,) = signature.structured_input_signature[1], signature.structured_outputs

    def embed(texts: Sequence[str]) -> np.ndarray:
        assert loaded is not None  # its variables live as long as it does
        return signature(**{given: tf.constant(texts)})[returned].numpy()

    return embed


def _maps_texts_to_vectors(signature: Any) -> bool:
    inputs = list(signature.structured_input_signature[1].values())
    outputs = list(signature.structured_outputs.values())
    return (
        len(inputs) == len(outputs) == 1
        and inputs[0].dtype == tf.string
        and inputs[0].shape.is_compatible_with([7])
        and outputs[0].dtype.is_floating
        and outputs[0].shape.rank in (None, 2)
    )
