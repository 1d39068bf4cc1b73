"""Embeddings in folders of sentence-transformers: an AlbertModel, and modules beside it.

modules.json lists a Transformer, in the folder itself, then a Pooling, perhaps a Dense and perhaps
a Normalize. Vectors are of length 1 here in any case; cosines do not change by it.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from albert_tf.runtime.errors import InputError, reading, shortened
from albert_tf.runtime.files import outputs
from albert_tf.tasks.embedding.model import EmbeddingSettings
from albert_tf.tasks.embedding.module_files import (
    FLAGS,
    LENGTHS,
    MODULES,
    max_length_in,
    modules_in,
    pooling_in,
)
from albert_tf.tasks.transformers_head import TransformersHead, Weights

_PROMPTS = "config_sentence_transformers.json"
_POOLING, _DENSE, _NORMALIZE = "1_Pooling", "2_Dense", "3_Normalize"
_IDENTITY = "torch.nn.modules.linear.Identity"
_TENSOR = "linear.weight"


class SentenceTransformers(TransformersHead[EmbeddingSettings]):
    """An AlbertModel with the modules of sentence-transformers."""

    def __init__(self) -> None:
        super().__init__("AlbertModel", "classifier", open_settings=())

    def is_in(self, folder: str) -> bool:
        """Return True if there is a list of modules: another AlbertModel is an encoder."""
        return os.path.isfile(os.path.join(folder, MODULES))

    def refusal(self, task: EmbeddingSettings) -> str | None:
        """Return why sentence-transformers cannot pool as a run does, or None if it can."""
        if task.pooling == "mean":
            return None
        return (
            "sentence-transformers takes the first hidden state itself as `cls`, but the run has "
            "the pooler's output (task.pooling=cls). Train with the mean"
        )

    def settings_in(self, folder: str) -> dict[str, Any]:
        """Return the settings that the modules state.

        Raises:
          InputError: a file is damaged, or there are other modules or another pooling.
        """
        paths = _modules(folder)
        stated: dict[str, Any] = {"pooling": _pooling(os.path.join(folder, paths["Pooling"]))}
        stated["projection"] = 0
        if "Dense" in paths:
            stated["projection"] = _kernel(os.path.join(folder, paths["Dense"])).shape[1]
        if (length := max_length_in(folder)) is not None:
            stated["seq_length"] = length
        values = _read(os.path.join(folder, _PROMPTS))
        if (measure := values.get("similarity_fn_name")) not in (None, "cosine") and (
            "Normalize" not in paths
        ):
            raise InputError(
                f"{os.path.join(folder, _PROMPTS)!r}: `similarity_fn_name` must be cosine without "
                f"a Normalize, since vectors have length 1 here. Received: {shortened(measure)}. "
                "To read only the encoder, pass --ignore=head --allow_missing=mlm_head,pair_head."
            )
        lengths = os.path.join(folder, LENGTHS)
        if _read(lengths).get("do_lower_case"):
            raise InputError(
                f"{lengths!r}: `do_lower_case` must be false: the tokenizer's own files say what "
                "happens to case. Set it there, and here to false."
            )
        prompts = values.get("prompts") or {}
        pooling = _read(os.path.join(folder, paths["Pooling"], "config.json"))
        for problem, is_so in (
            ("`default_prompt_name`", bool(prompts.get(values.get("default_prompt_name") or ""))),
            (
                "`include_prompt` false",
                any(prompts.values()) and not pooling.get("include_prompt", True),
            ),
        ):
            if is_so:
                raise InputError(
                    f"{folder!r}: a model with prompts and {problem} is not supported. Its vectors "
                    "would differ, since the use of a text decides its prompt here, whose pieces "
                    "count. To read only the encoder, pass --ignore=head "
                    "--allow_missing=mlm_head,pair_head."
                )
        names = {"query_prompt": ("query",), "passage_prompt": ("document", "passage", "corpus")}
        for key, theirs in names.items():
            stated[key] = next((prompts[name] for name in theirs if prompts.get(name)), "")
        return stated

    def tensors_in(self, folder: str) -> Weights:
        """Return the tensor of the Dense module, if there is one."""
        path = _modules(folder).get("Dense")
        name = f"{self.layer}.weight"
        return {} if path is None else {name: _kernel(os.path.join(folder, path)).T}

    def files(self, task: EmbeddingSettings, tensors: dict[str, np.ndarray]) -> dict[str, bytes]:
        """Take the tensor of the head out of `tensors`; return the modules' files by path."""
        width = task.projection
        names = ["Transformer", "Pooling", *(["Dense"] if width else []), "Normalize"]
        paths = {"Transformer": "", "Pooling": _POOLING, "Dense": _DENSE, "Normalize": _NORMALIZE}
        modules = [
            {
                "idx": number,
                "name": str(number),
                "path": paths[name],
                "type": f"sentence_transformers.models.{name}",
            }
            for number, name in enumerate(names)
        ]
        prompts = {"query": task.query_prompt, "document": task.passage_prompt}
        width_of_pooling = tensors["albert.pooler.bias"].shape[0]
        files: dict[str, Any] = {
            MODULES: modules,
            f"{_POOLING}/config.json": {"word_embedding_dimension": width_of_pooling}
            | {flag: name == "mean" for name, flag in FLAGS.items()},
            LENGTHS: {"max_seq_length": task.seq_length, "do_lower_case": False},
            _PROMPTS: {"prompts": prompts, "similarity_fn_name": "cosine"},
        }
        written: dict[str, bytes] = {}
        if width:
            kernel = tensors.pop(f"{self.layer}.weight")
            files[f"{_DENSE}/config.json"] = {
                "in_features": kernel.shape[1],
                "out_features": kernel.shape[0],
                "bias": False,
                "activation_function": _IDENTITY,
            }
            written[f"{_DENSE}/model.safetensors"] = safetensors.numpy.save(
                {_TENSOR: np.ascontiguousarray(kernel)}, metadata={"format": "pt"}
            )
        return written | {name: _json(value) for name, value in files.items()}


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode()


def _read(path: str) -> Mapping[str, Any]:
    return outputs.read_json(path) if os.path.isfile(path) else {}


def _modules(folder: str) -> dict[str, str]:
    """Return the path of each module by its class.

    Raises:
      InputError: there are others than a Transformer, a Pooling, a Dense and a Normalize.
    """
    modules = modules_in(folder)
    names = [name for name, _ in modules]
    allowed: Sequence[str] = ("Transformer", "Pooling", "Dense", "Normalize")
    if names[:2] != [*allowed[:2]] or names != [name for name in allowed if name in names]:
        raise InputError(
            f"{os.path.join(folder, MODULES)!r} must list a Transformer, a Pooling, perhaps a "
            f"Dense and perhaps a Normalize, in this order. Received: {shortened(names)}. To read "
            "only the encoder, pass --ignore=head --allow_missing=mlm_head,pair_head."
        )
    return dict(modules)


def _pooling(folder: str) -> str:
    path = os.path.join(folder, "config.json")
    mode = pooling_in(outputs.read_json(path))
    if mode != "mean":
        raise InputError(
            f"{path!r}: the pooling must be the mean of the tokens. Received: {shortened(mode)}. "
            "To read only the encoder, pass --ignore=head --allow_missing=mlm_head,pair_head."
        )
    return mode


def _kernel(folder: str) -> np.ndarray:
    """Return the weights of a Dense module, float32 [H, D].

    Raises:
      InputError: it has a bias or an activation, or the file is damaged.
    """
    path = os.path.join(folder, "config.json")
    activation = str(outputs.read_json(path).get("activation_function", _IDENTITY))
    file = os.path.join(folder, "model.safetensors")
    try:
        with reading(file), safetensors.safe_open(file, framework="numpy") as content:
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
        kernel: np.ndarray = tensors[_TENSOR].astype(np.float32)
    except (OSError, KeyError, ValueError, TypeError, safetensors.SafetensorError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{file!r} must hold the tensor {_TENSOR}: {error}.") from None
    if not activation.endswith(".Identity") or np.any(tensors.get("linear.bias", 0)):
        raise InputError(
            f"{path!r}: a Dense module must have no bias and no activation here. Received: "
            f"{activation}{', a bias' if 'linear.bias' in tensors else ''}. To read only the "
            "encoder, pass --ignore=head --allow_missing=mlm_head,pair_head."
        )
    if kernel.ndim != 2:
        raise InputError(f"{file!r}: {_TENSOR} must be a matrix. Received: {kernel.shape}.")
    return kernel.T
