"""TF Hub's text encoders: SavedModels as tf-models-official's `export_tfhub_lib` writes them.

The reader accepts ALBERT (albert_en_base/3) and BERT, whose layers share nothing. It reads the MLM
head if the module has `.mlm`. A module contains no configuration. The reader infers the sizes from
the shapes of the weights and the depth from the number of outputs. It tries activations and
epsilons until our model reproduces the module's outputs, and rejects a module if none does.
"""

import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from albert_tf.convert.bundle import Bundle, MismatchPolicy, Weights
from albert_tf.convert.naming import Naming
from albert_tf.convert.native import tokenizer_in, variable
from albert_tf.models.checkpoints import is_saved_model, readable
from albert_tf.models.config import ACTIVATIONS, EXTRAS, AlbertConfig
from albert_tf.models.encoder import INPUTS
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.text.normalization import Normalization
from albert_tf.text.tokenizer import Tokenizer

Batch: TypeAlias = Mapping[str, tf.Tensor]  # the inputs of an AlbertPretrainer
TOLERANCE = 1e-4  # the largest accepted difference from the module's outputs
_EXACT = 1e-5  # a difference this small ends the search for activation and epsilon
_EPSILONS = (1e-12, 1e-6, 1e-5, 1e-3)  # tf-models-official's, then other common values
_OUTPUTS = ("encoder_outputs", "sequence_output", "pooled_output")
_WORDS = "word_embeddings/embeddings"
_POSITIONS = "position_embedding/embeddings"
_TYPES = "type_embeddings/embeddings"


def _naming(layer: str) -> Naming:
    attention = f"{layer}/self_attention"
    parts = {
        "encoder/embeddings/word_embeddings": _WORDS,
        "encoder/embeddings/position_embeddings": _POSITIONS,
        "encoder/embeddings/type_embeddings": _TYPES,
        "encoder/embeddings/layer_norm": "embeddings/layer_norm",
        "encoder/embeddings/projection": "embedding_projection",
        "encoder/stack/attentions/#/query": f"{attention}/query",
        "encoder/stack/attentions/#/key": f"{attention}/key",
        "encoder/stack/attentions/#/value": f"{attention}/value",
        "encoder/stack/attentions/#/output_dense": f"{attention}/attention_output",
        "encoder/stack/attentions/#/layer_norm": f"{attention}_layer_norm",
        "encoder/stack/feed_forwards/#/intermediate": f"{layer}/intermediate",
        "encoder/stack/feed_forwards/#/output_dense": f"{layer}/output",
        "encoder/stack/feed_forwards/#/layer_norm": f"{layer}/output_layer_norm",
        "encoder/pooler": "pooler_transform",
        "mlm_head/transform": "cls/predictions/transform/dense",
        "mlm_head/layer_norm": "cls/predictions/transform/LayerNorm",
        "mlm_head/bias": "cls/predictions/output_bias/bias",
        "pair_head/dense": "pair_head",  # no module has it
    }
    leaves = {leaf: f"/{leaf}" for leaf in ("kernel", "bias", "gamma", "beta")}
    return Naming(parts, leaves, lambda ours: False)


ALBERT, BERT = _naming("transformer"), _naming("transformer/layer_#")


def read(path: str, policy: MismatchPolicy, epsilons: Sequence[float] = _EPSILONS) -> Bundle:
    """Read the encoder in a module's folder; its unknown dropout rates become 0.

    `epsilons` are those of its LayerNorms that are tried.

    Raises:
      InputNotFoundError: there is no SavedModel at `path`.
      InputError: the SavedModel is of another kind, or our model cannot reproduce its outputs.
    """
    module = _load(path)
    arrays = {n: a for n, a in _weights(module, path).items() if not n.startswith(policy.ignore)}
    config = _config_from_shapes(arrays, path)
    inputs = _batch(config)
    outputs = _outputs(module, inputs, path)
    config = config.replace(num_layers=len(outputs["encoder_outputs"]))
    naming = ALBERT if config.sharing == "all" else BERT
    flat = {name: _without_heads(name, array) for name, array in arrays.items()}
    weights = naming.to_ours(config, flat, policy, path)
    config = _match_numerics(config, weights, inputs, outputs, epsilons, path)
    return Bundle(config, weights, _tokenizer(module, path))


def _load(path: str) -> Any:
    if not is_saved_model(path):
        raise InputNotFoundError(
            f"no file saved_model.pb in {path!r} (working directory {os.getcwd()}). Nothing is "
            "downloaded: pass the folder of an unpacked module."
        )
    if os.path.isfile(os.path.join(path, EXTRAS, "config.json")):
        raise InputError(f"{path!r} is an export of albert_tf; pass it without `hub:`.")
    with readable(path) as folder:
        try:
            module = tf.saved_model.load(folder)
        except Exception as error:  # a damaged file or a foreign op can raise any type
            raise _unsupported(path, f"it cannot be loaded: {str(error)[:200]}") from None
    if not callable(module) or not hasattr(module, "variables"):
        raise _unsupported(path, "it cannot be called or has no `variables`")
    return module


def _unsupported(path: str, reason: str) -> InputError:
    return InputError(
        f"{path!r} must be an ALBERT or BERT encoder of TF Hub, as written by export_tfhub_lib of "
        f"tf-models-official (for a TF1 module use google:), but {reason}."
    )


def _weights(module: Any, path: str) -> dict[str, np.ndarray]:
    """Return the weights of the module and its `.mlm` by name, without non-float settings."""
    variables: dict[str, Any] = {}
    for value in (*module.variables, *getattr(getattr(module, "mlm", None), "variables", ())):
        name = re.sub(r"^.*/(?=cls/predictions/)", "", value.name.partition(":")[0])
        if value.dtype.is_floating and variables.setdefault(name, value) is not value:
            raise _unsupported(path, f"two of its weights are named {name}")
    return {name: value.numpy() for name, value in variables.items()}


def _config_from_shapes(arrays: Weights, path: str) -> AlbertConfig:
    """Infer the configuration, except the number of layers, from the weights' shapes."""
    is_bert = any(name.startswith("transformer/layer_") for name in arrays)
    layer = "transformer/layer_0" if is_bert else "transformer"
    query, inner = f"{layer}/self_attention/query/kernel", f"{layer}/intermediate/kernel"
    ranks = {_WORDS: 2, _POSITIONS: 2, _TYPES: 2, query: 3, inner: 2}
    if wrong := [n for n, rank in ranks.items() if n not in arrays or arrays[n].ndim != rank]:
        raise _unsupported(path, f"its weights include no {', no '.join(wrong)} of the usual rank")
    return AlbertConfig(
        vocab_size=arrays[_WORDS].shape[0],
        embedding_size=arrays[_WORDS].shape[1],
        hidden_size=arrays[query].shape[0],
        num_heads=arrays[query].shape[1],
        intermediate_size=arrays[inner].shape[1],
        max_positions=arrays[_POSITIONS].shape[0],
        type_vocab_size=arrays[_TYPES].shape[0],
        sharing="none" if is_bert else "all",
    )


def _without_heads(name: str, array: np.ndarray) -> np.ndarray:
    """Return the weight with attention's head dimensions [.., N, H/N] merged into one."""
    if "/self_attention/" not in name:
        return array
    if name.endswith("/attention_output/kernel"):
        return array.reshape(-1, array.shape[-1])
    return array.reshape(len(array), -1) if name.endswith("/kernel") else array.reshape(-1)


def _batch(config: AlbertConfig) -> Batch:
    """Return random inputs [2, S], the same on every call; the second row ends in padding."""
    random, length = np.random.default_rng(0), min(32, config.max_positions)
    half = (length + 1) // 2
    batch = {
        "input_word_ids": random.integers(0, config.vocab_size, [2, length]),
        "input_mask": np.arange(length) < [[length], [half]],
        "input_type_ids": random.integers(0, config.type_vocab_size, [2, length]),
        "masked_lm_positions": random.integers(0, half, [2, 4]),
    }
    return {name: tf.constant(value, tf.int32) for name, value in batch.items()}


def _outputs(module: Any, inputs: Batch, path: str) -> dict[str, Any]:
    """Return the outputs of the module and its `.mlm`."""
    outputs = _call(module, {name: inputs[name] for name in INPUTS}, _OUTPUTS, path)
    if hasattr(module, "mlm"):
        outputs |= _call(module.mlm, inputs, ("mlm_logits",), path)
    return outputs


def _call(function: Any, inputs: Batch, names: tuple[str, ...], path: str) -> dict[str, Any]:
    reason = ""
    for options in ({"training": False}, {}):  # some modules lack the argument
        try:
            outputs = function(inputs, **options)
        except (TypeError, ValueError, tf.errors.OpError) as error:
            reason = f": {str(error)[:200]}"
            continue
        if isinstance(outputs, Mapping) and outputs.keys() >= set(names):
            return {name: outputs[name] for name in names}
    raise _unsupported(
        path, f"given {', '.join(inputs)} it does not return {', '.join(names)}{reason}"
    )


def _match_numerics(
    config: AlbertConfig,
    weights: Weights,
    inputs: Batch,
    outputs: Mapping[str, Any],
    epsilons: Sequence[float],
    path: str,
) -> AlbertConfig:
    """Return `config` with the activation and epsilons that reproduce the module's outputs."""

    def nearest(choices: Iterable[AlbertConfig], names: tuple[str, ...]) -> AlbertConfig:
        expected, differences = {name: outputs[name] for name in names}, {}
        for choice in choices:
            differences[choice] = _max_difference(choice, weights, inputs, expected)
            if differences[choice] <= _EXACT:
                break
        best = min(differences, key=differences.__getitem__)
        if not differences[best] <= TOLERANCE:  # also rejects NaN
            reason = (
                f"our model's {', '.join(names)} differ from its own by {differences[best]:.2g}"
            )
            raise _unsupported(path, f"{reason} at best, more than {TOLERANCE}")
        return best

    pairs = itertools.product(epsilons, ACTIVATIONS)
    encoders = (config.replace(layer_norm_eps=eps, activation=act) for eps, act in pairs)
    config = nearest(encoders, _OUTPUTS if "encoder/pooler/kernel" in weights else _OUTPUTS[:2])
    if "mlm_logits" not in outputs or "mlm_head/bias" not in weights:
        return config
    heads = (config.replace(mlm_layer_norm_eps=eps) for eps in epsilons)
    return nearest(heads, ("mlm_logits",))


def _max_difference(
    config: AlbertConfig, weights: Weights, inputs: Batch, expected: Mapping[str, Any]
) -> float:
    """Return the largest difference between our outputs and `expected`, ignoring padding."""
    model = AlbertPretrainer(config).create_weights()
    for name, value in weights.items():
        variable(model, name).assign(value)
    ours, is_real = model(inputs), inputs["input_mask"].numpy()[..., np.newaxis]
    gaps = []
    for name, value in expected.items():
        left, right = np.asarray(ours[name]), np.asarray(value)
        if left.shape != right.shape:
            return np.inf
        gaps.append(np.abs(left - right) * (is_real if name in _OUTPUTS[:2] else 1))
    return float(np.max([gap.max() for gap in gaps]))  # NaN if any gap is NaN


def _tokenizer(module: Any, path: str) -> Tokenizer | None:
    """Load the vocabulary from the module's assets or, failing that, from its folder."""
    for name in ("sp_model_file", "vocab_file"):
        if hasattr(module, name):
            asset = getattr(module, name).asset_path.numpy().decode()
            file = os.path.join(path, "assets", os.path.basename(asset))
            with open(file, "rb") as stream:
                return Tokenizer(stream.read(), _normalization(module), source=f"{file!r}")
    return tokenizer_in(path)


def _normalization(module: Any) -> Normalization | None:
    """Return BERT's rules, which keep both case and accents or neither; None: the vocabulary's."""
    if not hasattr(module, "do_lower_case"):
        return None
    lowercase = bool(module.do_lower_case.numpy())
    return Normalization(lowercase, lowercase)
