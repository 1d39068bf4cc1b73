"""Folders of Hugging Face's transformers: config.json, model.safetensors, the vocabulary.

Needs safetensors (`pip install safetensors`), and for a pytorch_model.bin torch.
"""

import importlib
import os
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from albert_tf import outputs
from albert_tf.config import AlbertConfig
from albert_tf.convert import config_keys, huggingface_tokenizer
from albert_tf.convert.bundle import Bundle, Leniency, Weights
from albert_tf.convert.naming import Naming
from albert_tf.errors import InputError, InputNotFoundError

WEIGHTS_FILE, TORCH_FILE = "model.safetensors", "pytorch_model.bin"
KEYS = config_keys.KEYS | {"layer_norm_eps": "layer_norm_eps"}
# Their plain "gelu" is the erf form, which our models do not have.
_ACTIVATIONS = {
    "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu_python_tanh": "gelu", "relu": "relu",
}  # fmt: skip
_FIXED = config_keys.FIXED | {
    "model_type": "albert", "position_embedding_type": "absolute", "tie_word_embeddings": True,
    "is_decoder": False, "is_encoder_decoder": False, "add_cross_attention": False,
    "tie_encoder_decoder": False, "pruned_heads": {},
}  # fmt: skip
_INERT = {
    "_attn_implementation_autoset", "_commit_hash", "_name_or_path", "_num_labels", "architectures",
    "bos_token_id", "chunk_size_feed_forward", "classifier_dropout_prob", "dtype", "eos_token_id",
    "finetuning_task", "gradient_checkpointing", "id2label", "label2id", "num_labels",
    "output_attentions", "output_hidden_states", "output_past", "pad_token_id", "problem_type",
    "return_dict", "sep_token_id", "task_specific_params", "tf_legacy_loss", "tokenizer_class",
    "torch_dtype", "torchscript", "transformers_version", "use_bfloat16", "use_cache", "xla_device",
    # Of generating text, which every model's file held once.
    "bad_words_ids", "begin_suppress_tokens", "cross_attention_hidden_size",
    "decoder_start_token_id", "diversity_penalty", "do_sample", "early_stopping",
    "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "forced_bos_token_id",
    "forced_eos_token_id", "length_penalty", "max_length", "min_length", "no_repeat_ngram_size",
    "num_beam_groups", "num_beams", "num_return_sequences", "output_scores", "prefix",
    "remove_invalid_values", "repetition_penalty", "return_dict_in_generate", "suppress_tokens",
    "temperature", "top_k", "top_p", "typical_p",
}  # fmt: skip
_LAYER = "albert.encoder.albert_layer_groups.#.albert_layers.0"
PROJECTION = "albert.encoder.embedding_hidden_mapping_in"
_TABLES = {  # ours -> theirs: weights that are not a dense layer's
    "word_embeddings": "word_embeddings",
    "type_embeddings": "token_type_embeddings",
    "position_embeddings": "position_embeddings",
}
NAMING = Naming(
    {
        **{f"encoder/embeddings/{x}": f"albert.embeddings.{y}.weight" for x, y in _TABLES.items()},
        "encoder/embeddings/layer_norm": "albert.embeddings.LayerNorm",
        "encoder/embeddings/projection": PROJECTION,
        **{
            f"encoder/stack/attentions/#/{x}": f"{_LAYER}.attention.{x}"
            for x in ("query", "key", "value")
        },
        "encoder/stack/attentions/#/output_dense": f"{_LAYER}.attention.dense",
        "encoder/stack/attentions/#/layer_norm": f"{_LAYER}.attention.LayerNorm",
        "encoder/stack/feed_forwards/#/intermediate": f"{_LAYER}.ffn",
        "encoder/stack/feed_forwards/#/output_dense": f"{_LAYER}.ffn_output",
        "encoder/stack/feed_forwards/#/layer_norm": f"{_LAYER}.full_layer_layer_norm",
        "encoder/pooler": "albert.pooler",
        "mlm_head/transform": "predictions.dense",
        "mlm_head/layer_norm": "predictions.LayerNorm",
        "mlm_head/bias": "predictions.bias",
        "pair_head/dense": "sop_classifier.classifier",
    },
    {"kernel": ".weight", "bias": ".bias", "gamma": ".weight", "beta": ".bias"},
    lambda ours: ours.endswith("/kernel"),
)
_TIED = {
    "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
}
_BUFFERS = ("albert.embeddings.position_ids", "albert.embeddings.token_type_ids")


def read(path: str, leniency: Leniency) -> Bundle:
    """The model in a folder, with any of their heads that ours has.

    Raises:
      InputNotFoundError: no config.json or no weights.
      InputError: weights other than the configuration's, or a configuration that we cannot match.
    """
    if not os.path.isdir(path):
        raise InputNotFoundError(
            f"no folder {path!r} (working folder {os.getcwd()}). Nothing is downloaded: fetch the "
            "model's files first, for example with `hf download NAME --local-dir FOLDER`."
        )
    file = os.path.join(path, "config.json")
    values = config_keys.read_json(file)
    config = read_config({k: v for k, v in values.items() if k not in leniency.ignore}, file)
    tensors = _read_tensors(path)
    if not any(name.startswith("albert.") for name in tensors):  # an AlbertModel's own folder
        tensors = {f"albert.{name}": value for name, value in tensors.items()}
    ignored = (*_BUFFERS, *leniency.ignore)
    tensors = {name: value for name, value in tensors.items() if not name.startswith(ignored)}
    return Bundle(
        config, to_ours(config, tensors, leniency, path), huggingface_tokenizer.read(path)
    )


def check(bundle: Bundle) -> list[str]:
    """What their format cannot carry.

    Raises:
      ConfigError: it cannot hold this model.
    """
    notes, config = [], bundle.config
    config_keys.from_config(config, KEYS)
    if config.mlm_layer_norm_eps != config.layer_norm_eps:
        notes.append(
            "Hugging Face's code computes the MLM head's LayerNorm with epsilon "
            f"{config.layer_norm_eps}, as all others: guesses for masked pieces differ slightly "
            f"from those with your {config.mlm_layer_norm_eps}."
        )
    tokenizer = bundle.tokenizer
    if tokenizer and huggingface_tokenizer.is_sentencepiece(tokenizer):
        if not tokenizer.normalization.unify_quotes:
            notes.append(
                "Hugging Face's tokenizer, unlike yours, makes a quotation mark of `` or ''."
            )
    return notes


def write(bundle: Bundle, folder: str) -> None:
    """Writes a folder for `AlbertForPreTraining.from_pretrained`, no key missing or unexpected."""
    save_file = _package("safetensors.numpy").save_file
    tensors = from_ours(bundle.config, bundle.weights)
    save_file(tensors, os.path.join(folder, WEIGHTS_FILE), metadata={"format": "pt"})
    special = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    if bundle.tokenizer:
        ids = bundle.tokenizer.special
        special = {"pad_token_id": ids.pad, "bos_token_id": ids.cls, "eos_token_id": ids.sep}
        huggingface_tokenizer.write(bundle.tokenizer, folder)
    outputs.write_json(os.path.join(folder, "config.json"), to_json(bundle.config) | special)


def read_config(values: Mapping[str, Any], source: str) -> AlbertConfig:
    """Our configuration from their config.json's keys; ConfigError for what has no equal."""
    config = config_keys.to_config(values, KEYS, _ACTIVATIONS, _FIXED, _INERT, source)
    # One epsilon for all of their LayerNorms, the MLM head's included.
    return config.replace(mlm_layer_norm_eps=config.layer_norm_eps)


def to_json(config: AlbertConfig) -> dict[str, Any]:
    """Their config.json, without what the tokenizer decides."""
    values = config_keys.from_config(config, KEYS)
    values["hidden_act"] = {"gelu": "gelu_new", "relu": "relu"}[config.activation]
    return values | {
        "architectures": ["AlbertForPreTraining"],
        "model_type": "albert",
        "classifier_dropout_prob": 0.1,
        "dtype": "float32",
    }


def from_ours(config: AlbertConfig, weights: Weights) -> dict[str, np.ndarray]:
    """The tensors of their AlbertForPreTraining; the decoder is tied and left out."""
    tensors = NAMING.from_ours(weights)
    if config.embedding_size == config.hidden_size:  # they always project: by the identity
        tensors[f"{PROJECTION}.weight"] = np.eye(config.hidden_size, dtype=np.float32)
        tensors[f"{PROJECTION}.bias"] = np.zeros(config.hidden_size, np.float32)
    return tensors


def to_ours(
    config: AlbertConfig, tensors: Weights, leniency: Leniency, source: str
) -> dict[str, np.ndarray]:
    """Our weights from their tensors.

    Raises:
      InputError: other names or shapes, a decoder with weights of its own, or a projection where
        E == H that is not the identity.
    """
    found = dict(tensors)
    for copy, original in _TIED.items():
        if copy in found and not np.array_equal(
            found.setdefault(original, found[copy]), found[copy]
        ):
            raise InputError(
                f"{source!r}: {copy} must be the same as {original}, and differs. An MLM head with "
                "a decoder of its own has no equal here."
            )
        found.pop(copy, None)
    if config.embedding_size == config.hidden_size:
        kernel = found.pop(f"{PROJECTION}.weight", np.zeros([]))
        bias = found.pop(f"{PROJECTION}.bias", np.zeros([]))
        if not np.array_equal(kernel, np.eye(config.hidden_size)) or bias.any():
            raise InputError(
                f"{source!r}: where embedding_size is hidden_size there must be no projection, "
                f"and {PROJECTION} is not the identity."
            )
    return NAMING.to_ours(config, found, leniency, source)


def _read_tensors(path: str) -> dict[str, np.ndarray]:
    for name, read_file in ((WEIGHTS_FILE, _read_safetensors), (TORCH_FILE, _read_torch)):
        file = os.path.join(path, name)
        if os.path.isfile(file):
            return read_file(file)
        if os.path.isfile(f"{file}.index.json"):
            raise InputError(
                f"{file}.index.json lists weights in several files, and one is needed: "
                f"AlbertForPreTraining.from_pretrained({path!r}).save_pretrained(NEW, "
                "max_shard_size='100GB') writes it."
            )
    raise InputNotFoundError(
        f"neither {WEIGHTS_FILE} nor {TORCH_FILE} in {path!r} (working folder {os.getcwd()})."
    )


def _read_safetensors(file: str) -> dict[str, np.ndarray]:
    safe = _package("safetensors")
    try:
        with safe.safe_open(file, framework="numpy") as tensors:
            return {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
    except (safe.SafetensorError, TypeError) as error:
        raise InputError(f"{file!r} is no readable safetensors file: {error}.") from None


def _read_torch(file: str) -> dict[str, np.ndarray]:
    torch = _package("torch")
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # bytes that are no pickle end in any kind
        reason = textwrap.shorten(str(error), 200)
        raise InputError(f"{file!r} is no readable file of torch tensors: {reason}") from None
    entries = state.items() if isinstance(state, Mapping) else [("the whole", state)]
    for name, value in entries:
        if not isinstance(value, torch.Tensor):
            raise InputError(
                f"{file!r} must hold tensors by name, as a model's state_dict() does. Received: "
                f"{name!r} of type {type(value).__name__}."
            )
    return {name: tensor.float().numpy() for name, tensor in entries}


def _package(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        name = module.partition(".")[0]
        raise InputError(f"huggingface: needs the package {name}: pip install {name}.") from None
